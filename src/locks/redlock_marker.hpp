// redlock_marker.hpp: what a server of a Redlock cluster knows of itself, and
// the names of the keys.
//
// The marker stands on the server as one line of words:
//
//   redlock-1 <cluster> <place> <N> <max TTL in ms> <durable> <names>
//             <identity>
//
// It names the memory (run id and replication id) that it was written for, so
// a server that was restarted has a marker of somebody else.
//
// While the members are changed, and for good on a server that was left out,
// another line stands in its place, which no script takes for a marker:
//
//   redlock-closed-1 <old cluster> <old place> <old N> <new cluster> <new N>
//                    <max TTL in ms> <durable> <names> <stays> <nonce>
//                    <counter>
//
// The nonce makes each such line one that was written once. The counter is
// '-' where it says nothing of the tokens; the old cluster is '-' on a server
// that joins.
#pragma once

#include <cstdint>
#include <lastdoor/clock.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace lastdoor::redlock {

// What all servers of a cluster share.
struct cluster {
  std::string id;  // 40 hex digits
  unsigned n{0};
  std::int64_t max_ttl_ms{0};
  bool durable{false};
  std::string names;  // names_digest of the servers

  friend bool operator==(const cluster&, const cluster&) = default;
};

struct marker {
  cluster of;
  unsigned place{0};
  std::string identity;

  [[nodiscard]] std::string text() const;
  // Nothing when it is not one.
  [[nodiscard]] static std::optional<marker> parse(std::string_view text);
};

// What a server has instead of its marker once it may not vote any more, or
// not yet.
struct closed {
  std::string from;  // the old cluster; empty: it belonged to none
  unsigned from_place{0};
  unsigned from_n{0};
  cluster to;
  bool stays{false};  // it is to be a member of the new one
  std::string nonce;
  std::optional<std::int64_t> counter;

  // Without its last word, which the server adds.
  [[nodiscard]] std::string head() const;
  [[nodiscard]] static std::optional<closed> parse(std::string_view text);
};

// 16 hex digits for a list of addresses in its order (FNV-1a).
[[nodiscard]] std::string names_digest(std::span<const std::string> addresses);

// The id of the cluster that a change makes of `from`: the same for all who
// are at the same change.
[[nodiscard]] std::string successor(std::string_view from,
                                    std::string_view names);

class keys {
 public:
  explicit keys(std::string_view name_space)
      : prefix_{"lastdoor:{" + std::string{name_space} + "}:redlock:"},
        counter{prefix_ + "counter"},
        marker{prefix_ + "marker"},
        note{prefix_ + "note"} {}

  [[nodiscard]] std::string lock(std::string_view resource) const {
    return prefix_ + "lock:" + std::string{resource};
  }
  [[nodiscard]] std::string channel(std::string_view resource) const {
    return prefix_ + "free:" + std::string{resource};
  }

 private:
  std::string prefix_;

 public:
  const std::string counter;
  const std::string marker;
  const std::string note;
};

}  // namespace lastdoor::redlock

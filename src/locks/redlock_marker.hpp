// redlock_marker.hpp: what a server of a Redlock cluster knows of itself, and
// the names of the keys.
//
// The marker stands on the server as one line of words:
//
//   redlock-1 <cluster> <place> <N> <max TTL in ms> <durable> <identity>
//
// It names the memory (run id and replication id) that it was written for, so
// a server that was restarted has a marker of somebody else.
#pragma once

#include <cstdint>
#include <lastdoor/clock.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lastdoor::redlock {

// What all servers of a cluster share.
struct cluster {
  std::string id;  // 40 hex digits
  unsigned n{0};
  std::int64_t max_ttl_ms{0};
  bool durable{false};

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

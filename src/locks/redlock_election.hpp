// redlock_election.hpp: one acquisition: the votes, and what they come to.
//
// Thread safety: a session holds the loop's lock.
#pragma once

#include <lastdoor/lock_backend.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "redlock_servers.hpp"

namespace lastdoor::redlock {

[[nodiscard]] error exhausted();
[[nodiscard]] error no_quorum(unsigned could, unsigned n,
                              const std::string& why);

// Rounded up: a server must not end a lease before its holder does, and 0
// would delete it.
[[nodiscard]] std::string ttl_text(duration ttl);

// Asks at once when made. One step of the loop runs it.
class election {
 public:
  election(servers& all, redis_driver::session& in,
           const lease_request& request);

  // Decided, one way or the other.
  bool step();

  [[nodiscard]] time_point next_limit() const noexcept {
    return raises_ ? std::min(votes_.next_limit(), raises_->next_limit())
                   : votes_.next_limit();
  }
  [[nodiscard]] const std::optional<choice>& granted() const noexcept {
    return grant_;
  }
  // Whether it took the second round trip.
  [[nodiscard]] bool took_two() const noexcept { return raised_.has_value(); }
  [[nodiscard]] const round& votes() const noexcept { return votes_; }
  // Why nothing was granted.
  [[nodiscard]] error failure() const;

 private:
  void take(unsigned k);
  void complain(std::string_view what);
  void begin_raising(const choice& c);
  unsigned standing_after_raise();
  [[nodiscard]] bool impossible() const;

  servers& all_;
  const lease_request& request_;
  redis_driver::session& in_;
  round votes_;
  std::optional<round> raises_;  // the second round, made when it is needed
  std::vector<std::int64_t> answers_;   // 0: none
  std::vector<std::int64_t> busy_for_;  // ms; -1: not busy
  std::vector<bool> seen_;
  std::optional<choice> raised_;
  std::optional<choice> grant_;
  std::optional<error> trouble_;
  std::optional<error> moved_;  // the servers were changed
  std::string holder_;
  std::string why_;
  bool exhausted_{false};
  bool damaged_{false};
};

}  // namespace lastdoor::redlock

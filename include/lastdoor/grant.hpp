// grant.hpp: what an acquisition returns, and what a store is shown.
//
// Invariants
//   - resource, owner, token and source are fixed for ever: a retry, a
//     reconnect or a child process presents the same ones. Nothing in
//     lastdoor asks a service for "the current token" again; a stale holder
//     would be handed its successor's.
//   - Only `valid_until` moves, only forward, and only the lease moves it.
//     After the lease ended it is over for good.
//
// A grant is a cheap handle: copies share one state, a moved-from grant is a
// copy, so there is no empty grant that could slip past a store.
//
// Thread safety: all members may be called from any thread.
//
// Example: a child process of `lastdoor run` presents its parent's grant:
//
//   auto grant = lastdoor::grant::from_environment().value();
//   store.write(grant, lastdoor::update("jobs").key("id", 7).set("done", 1));
#pragma once

#include <lastdoor/clock.hpp>
#include <lastdoor/token.hpp>
#include <memory>

namespace lastdoor {

namespace detail {
class lease_state;
}

class grant {
 public:
  grant(resource_name resource, owner_id owner, fencing_token token,
        source_name source, time_point valid_until);

  // Declared without their moving twins: a move is a copy, see above.
  grant(const grant&) = default;
  grant& operator=(const grant&) = default;

  /// Reads LASTDOOR_RESOURCE, LASTDOOR_TOKEN, LASTDOOR_OWNER and
  /// LASTDOOR_SOURCE, as `lastdoor run` sets them. Its validity is not known
  /// here and counts as endless: the store alone decides.
  /// `invalid_argument` when one is unset, empty or malformed.
  [[nodiscard]] static result<grant> from_environment();

  [[nodiscard]] const resource_name& resource() const noexcept;
  [[nodiscard]] const owner_id& owner() const noexcept;
  [[nodiscard]] fencing_token token() const noexcept;
  [[nodiscard]] const source_name& source() const noexcept;

  /// The moment after which the holder can no longer prove that it holds.
  [[nodiscard]] time_point valid_until() const noexcept;
  /// True while `now` is before `valid_until()`.
  [[nodiscard]] bool valid_at(time_point now) const noexcept {
    return now < valid_until();
  }

  /// True when both are handles of the very same acquisition.
  friend bool operator==(const grant& a, const grant& b) noexcept {
    return a.state_ == b.state_;
  }

 private:
  friend class detail::lease_state;  // the one writer of the validity
  struct state;

  // Moves the validity forward; never back, and not after `end()`.
  void extend(time_point valid_until) const noexcept;
  // Ends the validity for good: lost or released.
  void end() const noexcept;

  std::shared_ptr<const state> state_;
};

}  // namespace lastdoor

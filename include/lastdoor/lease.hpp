// lease.hpp: the holder's handle on a lock.
//
// Invariants
//   - One lease, one grant, one token: renewal moves the deadline only.
//   - G7: the stop token fires `loss_margin` before validity ends, raised by
//     a local timer, whatever the servers do. Once only, with a reason.
//   - A lost lease never comes back. Only a new grant with a new token does.
//   - Losing the lease does not undo writes and need not reach the holder in
//     time: that is what the store's fence is for.
//
// State        | renew()     | release()    | check()     | validity ends
// -------------|-------------|--------------|-------------|---------------
// held         | held / lost | released     | ok          | lost
// lost         | lease_lost  | lease_lost   | lease_lost  | -
// released     | lease_lost  | ok, no call  | lease_lost  | -
// moved-from   | lease_lost  | lease_lost   | lease_lost  | -
// after fork() | lease_lost  | lease_lost   | lease_lost  | - (in the child)
//
// A release that failed (`unavailable`, `in_doubt`) leaves the lease ended on
// this side; calling release() again repeats the request with the same owner
// value until it is confirmed, and recognises its own earlier success.
//
// Thread safety: all members may be called from any thread, except that the
// handle must not be moved or destroyed while another member runs.
// Lifetime: a lease may outlive its lock_service; it is then lost (shutdown).
//
// Example:
//
//   auto lease = locks.acquire("report/daily", {.ttl = 30s}).value();
//   while (work_left() && !lease.lost().stop_requested()) step(lease.grant());
//   lease.release().value();
#pragma once

#include <cstdint>
#include <lastdoor/grant.hpp>
#include <memory>
#include <optional>
#include <stop_token>

namespace lastdoor {

enum class loss_reason : std::uint8_t {
  refused,      // the service said that the lease is gone or foreign
  unconfirmed,  // no renewal was confirmed in time
  not_renewed,  // nobody asked to renew it, and it ran its time
  clock_jump,   // the clock ran backwards, or time passed in which this
                // process did not run: pause, suspend, restored snapshot
  overtaken,    // a store has seen a newer holder
  shutdown,     // the lock service was shut down
};

[[nodiscard]] std::string_view name_of(loss_reason reason) noexcept;

class lease {
 public:
  lease(lease&&) noexcept = default;
  lease& operator=(lease&& other) noexcept;
  lease(const lease&) = delete;
  lease& operator=(const lease&) = delete;

  /// Releases quietly: errors go to the observer. Never throws, waits at most
  /// one call timeout of the back end, for no answer at all with Redlock.
  /// Sends nothing when the lease is lost.
  ~lease();

  /// Throws `failure` (invalid_argument) on a moved-from lease.
  [[nodiscard]] const lastdoor::grant& grant() const;
  [[nodiscard]] fencing_token token() const { return grant().token(); }

  /// Fires before validity ends, or when the lease is lost otherwise. Its
  /// callbacks run on the thread that found out, mostly the one timer of the
  /// service: a slow one delays the signals of other leases. They may use and
  /// destroy the lease.
  [[nodiscard]] std::stop_token lost() const;
  /// Why it was lost; nothing while it is held and after a release.
  [[nodiscard]] std::optional<loss_reason> why_lost() const noexcept;

  /// Local and quick: `lease_lost` unless the lease is held and valid now.
  /// Call it before anything that the store cannot fence, a read for example.
  [[nodiscard]] result<void> check() const;
  /// What is left of the validity; zero when there is none.
  [[nodiscard]] duration remaining() const noexcept;

  /// Renews now, for the TTL it was acquired with. `not_owner` loses it;
  /// `unavailable` and `in_doubt` leave it held until its time is up.
  [[nodiscard]] result<void> renew();

  /// Ends the lease and tells the service. See the table above.
  [[nodiscard]] result<void> release();

  /// Tells this side that a store refused the token as stale.
  void overtaken() noexcept;

  /// Lets go without a release: no renewal, no call; the service keeps the
  /// lease until its TTL is over or someone releases it by grant.
  lastdoor::grant orphan() &&;

 private:
  friend class lock_service;
  explicit lease(std::shared_ptr<detail::lease_state> state) noexcept;
  void end_quietly() noexcept;

  std::shared_ptr<detail::lease_state> state_;
};

}  // namespace lastdoor

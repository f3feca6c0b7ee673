// lock_service.hpp: acquire a lease, wait for it fairly, keep it alive.
//
// A lock_service is a back end plus what every back end needs: argument
// checks before any traffic, waiting with back-off, a queue per resource so
// that the waiters of one process come first come first served and only the
// first of them talks to the back end, one timer that signals losses, and
// one thread that renews.
//
// Two threads, not one: renewals may block in a driver for a call timeout;
// the timer never does I/O, so a loss is signalled in time whatever the
// servers do. Both start with the first lease and are shared by all. Rejected:
// a thread per lease (thousands of leases), renewal on the caller's thread
// (a busy caller would lose its lease), one thread for both (G7 would hang on
// a server's answer).
//
// Thread safety: all members may be called from any thread.
// Lifetime: a cheap handle; copies share one service. When the last handle is
// gone, or at `shutdown()`, every lease of it is lost.
// Fork: after fork() the child's handles refuse everything and the child
// never renews or releases the parent's leases. Open a new service there.
//
// Example:
//
//   auto locks = lastdoor::open_sqlite_locks("locks.db").value();
//   auto lease = locks.acquire("payout/2026-11", {.ttl = 10s,
//                                                 .wait_at_most = 5s});
//   if (!lease) return report(lease.error());
#pragma once

#include <lastdoor/lease.hpp>
#include <lastdoor/lock_backend.hpp>
#include <lastdoor/observer.hpp>
#include <string_view>

namespace lastdoor {

// Every option has an initialiser, an empty one too: GCC warns about members
// that a designated initialiser leaves out if they have none.
// NOLINTBEGIN(readability-redundant-member-init)

/// Full jitter: each pause is random in [0, limit), the limit doubles from
/// `first` up to `cap`.
struct backoff_options {
  any_duration first{std::chrono::milliseconds{5}};
  any_duration cap{std::chrono::milliseconds{500}};
};

struct acquire_options {
  /// How long the lease lives without renewal: 1 ms up to the back end's
  /// limit. Long enough for several round trips; 10 s suits most work.
  any_duration ttl{std::chrono::seconds{10}};

  /// How long to wait while somebody else holds it. Zero: one attempt.
  any_duration wait_at_most{};

  /// A grant with less validity left is undone (`too_slow`).
  /// Default: half the TTL.
  std::optional<any_duration> minimum_validity{};

  /// Renew in the background until release or loss.
  bool renew{true};
  /// Default: a third of the TTL. `renew_every` + one call timeout of the
  /// back end + `loss_margin` must be below the TTL, else invalid_argument;
  /// with the default, the call timeout is shortened instead.
  std::optional<any_duration> renew_every{};

  /// How long before the end of validity the loss is signalled.
  /// Default: a tenth of the TTL.
  std::optional<any_duration> loss_margin{};

  backoff_options backoff{};

  /// Shown to those who find it busy. Default: "host:pid".
  std::string holder{};

  /// Interrupts the wait; the result is then `canceled`.
  std::stop_token stop{};
};

struct lock_service_options {
  std::shared_ptr<clock> time = boot_clock();
  std::shared_ptr<observer> observe{};
  /// Where the jitter of pauses starts. Default: drawn from the kernel; a
  /// fixed one makes a test repeatable.
  std::optional<std::uint64_t> jitter_seed{};
};

// NOLINTEND(readability-redundant-member-init)

class lock_service {
 public:
  explicit lock_service(std::unique_ptr<lock_backend> backend,
                        lock_service_options options = {});

  // Declared without their moving twins: a move is a copy, so there is no
  // empty handle.
  lock_service(const lock_service&) = default;
  lock_service& operator=(const lock_service&) = default;

  /// Effect: a lease on `resource`, or an error and nothing held.
  /// Waits in the process's queue first, then on the back end. Not
  /// re-entrant: a second acquisition by the same process finds it busy.
  /// `invalid_argument` before any traffic for a bad name, TTL or option;
  /// `busy` when the wait is over (also at once, when this process holds it
  /// or others of it are queued and `wait_at_most` is zero); `canceled`; else
  /// what the back end said. Waited out, with the last one returned, are
  /// `busy`, `unavailable`, `no_quorum`, `too_slow` and `in_doubt`: what such
  /// an attempt may have left is released by its owner value. An attempt
  /// that began in time may take one call timeout beyond the wait.
  [[nodiscard]] result<lease> acquire(std::string_view resource,
                                      const acquire_options& options = {});

  /// Releases by identity, e.g. one that another process was granted.
  [[nodiscard]] result<void> release(const grant& held);

  [[nodiscard]] result<lease_status> inspect(std::string_view resource);

  /// Afterwards every new token is above `floor`.
  [[nodiscard]] result<void> raise_floor(mark floor);

  [[nodiscard]] const source_name& source() const noexcept;
  [[nodiscard]] const std::shared_ptr<clock>& time() const noexcept;
  [[nodiscard]] const std::shared_ptr<observer>& observe() const noexcept;

  /// Ends every lease (reason: shutdown) and interrupts every wait
  /// (`canceled`). Releases nothing: a holder may still be at work, so the
  /// service keeps the leases until their TTL is over.
  void shutdown() noexcept;

 private:
  class core;
  friend class lease;
  friend class detail::lease_state;
  std::shared_ptr<core> core_;
};

}  // namespace lastdoor

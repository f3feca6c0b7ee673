// keeper.hpp: the two threads of a service: one that signals losses and one
// that renews.
//
// Invariants
//   - The timer thread never does I/O and holds no lock while it runs stop
//     callbacks or observers, so the loss of a lease is signalled in time
//     whatever a server does.
//   - Of several renewals that are due, the one whose lease ends first is
//     next; one call blocks the others for one call timeout at most.
//   - A thread sleeps until the next thing to do, and a later time on the
//     agenda does not wake it. With nothing held it sleeps for ever, after at
//     most one wake-up at a time that a lease asked for and no longer needs:
//     going back to sleep for ever at once would cost two context switches
//     for every short lease.
//
// Lock order: the keeper's mutex, then a lease's. No lease calls in here with
// its mutex held.
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <lastdoor/clock.hpp>
#include <lastdoor/errors.hpp>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "mutex.hpp"

namespace lastdoor::detail {

class lease_state;
class service_core;

using agenda = std::multimap<time_point, std::shared_ptr<lease_state>>;

/// Where a lease stands on the keeper's two agendas.
struct agenda_slot {
  std::optional<agenda::iterator> loss;
  std::optional<agenda::iterator> call;
};

class keeper {
 public:
  using leases = std::vector<std::shared_ptr<lease_state>>;

  /// Starts the threads unless they run. `unavailable` when the process may
  /// have no more threads or descriptors.
  [[nodiscard]] result<void> start(const std::shared_ptr<service_core>& core);

  /// Puts on the agendas what the lease says of itself, or takes it off.
  /// False after `stop()`: the lease is not looked after.
  [[nodiscard]] bool sync(const std::shared_ptr<lease_state>& lease);

  /// Makes the timer look at all leases now, because the clock was seen to
  /// run backwards: no time on the agenda can be trusted.
  void look_again() noexcept;

  /// Ends both threads at their next step; returns who was looked after.
  [[nodiscard]] leases stop();

  /// Waits for both threads, except for one that is the caller.
  void join() noexcept;

 private:
  struct worker {
    std::thread thread;
    std::unique_ptr<alarm> bell;
    time_point sleeps_until{time_point::min()};  // past: it is awake

    void wake_for(time_point at) noexcept;
  };
  struct losses_due {
    leases now;
    time_point next;
  };
  struct call_due {
    std::shared_ptr<lease_state> now;
    time_point next;
  };

  void signal_losses(const service_core& core, alarm& bell);
  void make_calls(const service_core& core, alarm& bell);
  std::optional<losses_due> next_losses(const service_core& core);
  std::optional<call_due> next_call(const service_core& core);
  void put(worker& w, agenda& on, std::optional<agenda::iterator>& at,
           const std::optional<time_point>& when,
           const std::shared_ptr<lease_state>& lease) LASTDOOR_REQUIRES(mutex_);
  void retire(worker& w);

  mutex mutex_;
  agenda losses_ LASTDOOR_GUARDED_BY(mutex_);
  agenda calls_ LASTDOOR_GUARDED_BY(mutex_);
  worker timer_ LASTDOOR_GUARDED_BY(mutex_);
  worker renewer_ LASTDOOR_GUARDED_BY(mutex_);
  unsigned jumps_seen_ LASTDOOR_GUARDED_BY(mutex_){0};
  bool started_ LASTDOOR_GUARDED_BY(mutex_){false};
  bool stopping_ LASTDOOR_GUARDED_BY(mutex_){false};
};

}  // namespace lastdoor::detail

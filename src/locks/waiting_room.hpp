// waiting_room.hpp: who of this process is next for a resource.
//
// Invariants
//   - First come, first served: only the front of a line may talk to the back
//     end, so a process with fifty waiters costs it no more than one.
//   - While a lease of this process is in the way, nobody talks: its end is
//     announced here, by `vacate` or `lapse`.
//
// Thread safety: all members may be called from any thread. The mutex is
// never held during a call to the back end; bells are rung under it, so a
// bell may be destroyed as soon as its place has forgotten it.
#pragma once

#include <algorithm>
#include <lastdoor/lock_service.hpp>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "mutex.hpp"

namespace lastdoor::detail {

class waiting_room {
 public:
  class place;

  /// The lease of `owner` is being released: in the way until the service
  /// has answered, or `until` then.
  void leaving(const resource_name& resource, const owner_id& owner,
               time_point until);
  /// The lease of `owner` is no longer in the way.
  void vacate(const resource_name& resource, const owner_id& owner);
  /// It was lost, but the service may still know it until then.
  void lapse(const resource_name& resource, const owner_id& owner,
             time_point until);
  /// Wakes the front of the line, because the resource may be free.
  void knock(const resource_name& resource);
  /// Wakes everybody.
  void knock_all() noexcept;

 private:
  struct waiter {
    alarm* bell{nullptr};  // null while it is awake
  };
  struct line {
    std::list<waiter> waiters;
    std::optional<grant> holder;
    // What counts instead of the validity of a grant that has ended.
    time_point held_until{time_point::min()};

    [[nodiscard]] bool held_by(const owner_id& owner) const noexcept {
      return holder && holder->owner() == owner;
    }
    [[nodiscard]] time_point busy_until() const noexcept {
      return holder ? std::max(holder->valid_until(), held_until) : held_until;
    }
    void ring_front() noexcept;
  };
  using lines = std::map<std::string, line>;  // its iterators last

  void drop_if_unused(lines::iterator at) LASTDOOR_REQUIRES(mutex_);

  mutex mutex_;
  lines lines_ LASTDOOR_GUARDED_BY(mutex_);
};

/// A place in a line; leaving it lets the next one come forward.
class waiting_room::place {
 public:
  /// An impatient caller takes no place where it would have to wait.
  place(waiting_room& room, const resource_name& resource, bool patient,
        time_point now);
  ~place();
  place(const place&) = delete;
  place& operator=(const place&) = delete;

  [[nodiscard]] bool taken() const noexcept { return taken_; }
  /// Until when a lease of this process was in the way at the last look.
  [[nodiscard]] time_point held_until() const noexcept { return held_until_; }
  /// Nothing when it is this place's turn, else how long it may sleep unless
  /// its bell rings.
  [[nodiscard]] std::optional<time_point> blocked_until(time_point now);
  /// The bell to ring; null forgets it.
  void use_bell(alarm* bell);
  /// Leaves the line as the holder.
  void granted(const grant& g);

 private:
  void leave() LASTDOOR_REQUIRES(room_.mutex_);

  waiting_room& room_;
  lines::iterator line_;
  std::list<waiter>::iterator me_;
  time_point held_until_;
  bool taken_{false};
};

}  // namespace lastdoor::detail

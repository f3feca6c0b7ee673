// turnstile.hpp: one at a time, first come first served, not for ever.
//
// A mutex lets the thread that has just left enter again before those that
// sleep, and a timed wait on one can starve past any deadline. Here a leaver
// hands its turn to the one who has waited longest.
//
// Thread safety: all members may be called from any thread; `leave` by the
// one whose turn it is.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <lastdoor/clock.hpp>
#include <mutex>

namespace lastdoor {

class turnstile {
 public:
  // False when `patience` was over first; then it is not the caller's turn.
  [[nodiscard]] bool enter(duration patience) {
    std::unique_lock lock{guard_};
    if (!taken_) {
      taken_ = true;
      return true;
    }
    ticket mine;
    waiting_.push_back(&mine);
    // The limit keeps the sum with the present time within its range.
    mine.called.wait_for(lock, std::min<duration>(patience, longest),
                         [&] { return mine.turn; });
    if (!mine.turn) {
      std::erase(waiting_, &mine);
    }
    return mine.turn;
  }

  void leave() noexcept {
    const std::lock_guard lock{guard_};
    if (waiting_.empty()) {
      taken_ = false;
      return;
    }
    ticket* next = waiting_.front();
    waiting_.pop_front();
    next->turn = true;
    // Under the lock: the ticket is gone as soon as its thread sees the turn.
    next->called.notify_one();
  }

  // How many wait now; for tests and for people.
  [[nodiscard]] std::size_t queued() {
    const std::lock_guard lock{guard_};
    return waiting_.size();
  }

 private:
  struct ticket {
    std::condition_variable called;
    bool turn{false};
  };
  static constexpr duration longest = std::chrono::hours{24};

  std::mutex guard_;
  bool taken_{false};
  std::deque<ticket*> waiting_;
};

}  // namespace lastdoor

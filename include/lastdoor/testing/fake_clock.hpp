// testing/fake_clock.hpp: a clock that a test moves by hand.
//
// Time stands still until the test moves it, and the threads of a service
// that sleep on this clock wake when their time has come. A test of an hour
// takes a millisecond and no sleep at all:
//
//   - `advance` is time that passes while everything runs: it stops at every
//     alarm on the way and goes on when all who woke up sleep again.
//   - `jump` is time that passes while nothing runs, as after a pause of the
//     process, a suspend or a restored snapshot. It may go backwards.
//   - `settle` waits, in real time, until everybody sleeps.
//
// Who counts as a sleeper: every thread that ever waited on an alarm of this
// clock and still has one. A thread that is awake keeps `advance` and `settle`
// waiting until it sleeps on some alarm again or destroys its last one, so a
// fake server that "hangs" must hang on an alarm of this clock too.
//
// Invariant: all alarms ring by this clock alone; no wall clock is read.
//
// Thread safety: all members may be called from any thread; `advance` and
// `settle` must not be called from a thread that sleeps on this clock, since
// they would wait for their own caller.
// Lifetime: hold it by std::shared_ptr; alarms keep it alive.
//
// Example:
//
//   auto time = std::make_shared<lastdoor::testing::fake_clock>();
//   lock_service locks{std::move(backend), {.time = time}};
//   auto lease = locks.acquire("r", {.ttl = 10s, .renew = false}).value();
//   time->advance(9s);
//   EXPECT_TRUE(lease.lost().stop_requested());
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <lastdoor/clock.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace lastdoor::testing {

class fake_clock final : public clock,
                         public std::enable_shared_from_this<fake_clock> {
 public:
  /// Starts at one day after boot, so that a test can step back from there.
  fake_clock() = default;

  [[nodiscard]] time_point now() const noexcept override {
    const std::lock_guard lock{mutex_};
    return now_;
  }

  [[nodiscard]] std::unique_ptr<alarm> make_alarm() override {
    return std::make_unique<bell>(shared_from_this());
  }

  /// Lets `by` pass while all threads run. Requires: by >= 0.
  void advance(duration by) {
    std::unique_lock lock{mutex_};
    const time_point end = now_ + by;
    for (;;) {
      changed_.wait(lock, [&] { return settled(); });
      const time_point next = next_wake_up();
      if (next > end)
        break;
      now_ = std::max(now_, next);
      wake_due();
    }
    now_ = std::max(now_, end);  // a call may have jumped further
  }

  /// Sets the time forth or back at once, and wakes whose time has come.
  /// Does not wait for them; `settle` does.
  void jump(duration by) {
    const std::lock_guard lock{mutex_};
    now_ += by;
    wake_due();
  }

  /// Waits until every thread that uses this clock sleeps on it.
  void settle() const {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return settled(); });
  }

  /// Waits until at least `count` threads sleep on this clock, and all do
  /// that use it. For threads that a test has just started.
  void settle(std::size_t count) const {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return settled() && asleep_.size() >= count; });
  }

  /// When the next sleeper wakes up; time_point::max() if none ever does.
  [[nodiscard]] time_point next_alarm() const {
    const std::lock_guard lock{mutex_};
    return next_wake_up();
  }

 private:
  // A thread is known by the alarms that it was the last to wait on. It is
  // awake from the moment something wakes it, not from when it first runs.
  class bell final : public alarm {
   public:
    explicit bell(std::shared_ptr<fake_clock> time) : time_{std::move(time)} {
      const std::lock_guard lock{time_->mutex_};
      ++time_->unused_;
    }
    ~bell() override {
      const std::lock_guard lock{time_->mutex_};
      give_up();
      time_->changed_.notify_all();
    }
    bell(const bell&) = delete;
    bell& operator=(const bell&) = delete;

    bool wait_until(time_point until) override {
      std::unique_lock lock{time_->mutex_};
      take();
      if (!rung_ && time_->now_ < until) {
        until_ = until;
        time_->asleep_.insert(this);
        --time_->users_[user_].awake;
        time_->changed_.notify_all();
        woken_.wait(lock, [&] { return !time_->asleep_.contains(this); });
      }
      return std::exchange(rung_, false);
    }

    void ring() noexcept override {
      const std::lock_guard lock{time_->mutex_};
      rung_ = true;
      if (time_->asleep_.contains(this))
        wake();
    }

    void wake() noexcept {
      time_->asleep_.erase(this);
      ++time_->users_[user_].awake;
      woken_.notify_all();
    }
    [[nodiscard]] time_point until() const noexcept { return until_; }

   private:
    void take() {
      const auto me = std::this_thread::get_id();
      if (used_ && user_ == me)
        return;
      give_up();
      used_ = true;
      user_ = me;
      ++time_->users_[me].alarms;
    }
    void give_up() {
      if (!used_) {
        --time_->unused_;
      } else if (--time_->users_[user_].alarms == 0) {
        time_->users_.erase(user_);
      }
    }

    std::shared_ptr<fake_clock> time_;
    std::condition_variable woken_;
    std::thread::id user_;
    time_point until_;
    bool used_{false};
    bool rung_{false};
  };

  struct user {
    int alarms{0};
    int awake{1};  // 0 while it sleeps
  };

  [[nodiscard]] bool settled() const {
    return unused_ == 0 &&
           std::all_of(users_.begin(), users_.end(),
                       [](const auto& u) { return u.second.awake == 0; });
  }
  [[nodiscard]] time_point next_wake_up() const {
    time_point next = time_point::max();
    for (const bell* b : asleep_)
      next = std::min(next, b->until());
    return next;
  }
  void wake_due() {
    for (auto at = asleep_.begin(); at != asleep_.end();) {
      bell* const b = *at++;
      if (b->until() <= now_)
        b->wake();
    }
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  time_point now_{std::chrono::hours{24}};
  std::set<bell*> asleep_;
  std::map<std::thread::id, user> users_;
  int unused_{0};  // alarms that nobody has waited on yet
};

}  // namespace lastdoor::testing

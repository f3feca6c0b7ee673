#include <sys/timerfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <ctime>
#include <lastdoor/clock.hpp>
#include <system_error>

namespace lastdoor {

namespace {

time_point read_boot_time() noexcept {
  timespec t{};
  // Cannot fail: the clock exists since Linux 2.6.39, the address is good.
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return time_point{std::chrono::seconds{t.tv_sec} +
                    std::chrono::nanoseconds{t.tv_nsec}};
}

// One descriptor is both the timer and the bell: to ring is to set the timer
// to a moment that is over. A condition variable would not do; it sleeps by a
// clock that stands still while the machine is suspended.
class boot_alarm final : public alarm {
 public:
  boot_alarm() : timer_{::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC)} {
    if (timer_ < 0) {
      throw std::system_error{errno, std::generic_category(), "timerfd_create"};
    }
  }
  ~boot_alarm() override { ::close(timer_); }
  boot_alarm(const boot_alarm&) = delete;
  boot_alarm& operator=(const boot_alarm&) = delete;

  bool wait_until(time_point until) override {
    for (;;) {
      // Armed before the flag is looked at, and `ring` sets the flag before it
      // arms: a ring is either seen here or comes after and ends the read.
      arm(until);
      if (rung_.exchange(false))
        return true;
      if (read_boot_time() >= until)
        return false;
      // Also returns for a signal, or for a ring that was consumed already.
      std::uint64_t expirations = 0;
      const auto n = ::read(timer_, &expirations, sizeof expirations);
      static_cast<void>(n);
    }
  }

  void ring() noexcept override {
    rung_.store(true);
    arm(time_point{});
  }

 private:
  void arm(time_point at) noexcept {
    // All zero would switch the timer off.
    const auto ns = std::max(at.time_since_epoch(), duration{1});
    const auto whole = std::chrono::floor<std::chrono::seconds>(ns);
    itimerspec t{};
    t.it_value.tv_sec = static_cast<std::time_t>(whole.count());
    t.it_value.tv_nsec = static_cast<long>((ns - whole).count());
    ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &t, nullptr);
  }

  int timer_;
  std::atomic<bool> rung_{false};
};

class boot_clock_type final : public clock {
 public:
  [[nodiscard]] time_point now() const noexcept override {
    return read_boot_time();
  }
  [[nodiscard]] std::unique_ptr<alarm> make_alarm() override {
    return std::make_unique<boot_alarm>();
  }
};

}  // namespace

const std::shared_ptr<clock>& boot_clock() {
  // Never destroyed: threads may still read it while the process ends.
  static const auto& only =
      *new std::shared_ptr<clock>{std::make_shared<boot_clock_type>()};
  return only;
}

}  // namespace lastdoor

#include <poll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <lastdoor/clock.hpp>
#include <system_error>

#include "drivers/event_bell.hpp"

namespace lastdoor {

namespace {

time_point read_boot_time() noexcept {
  timespec t{};
  // Cannot fail: the clock exists since Linux 2.6.39, the address is good.
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return time_point{std::chrono::seconds{t.tv_sec} +
                    std::chrono::nanoseconds{t.tv_nsec}};
}

// No sleep on a clock that stands still while the machine is suspended is
// longer: by so much may an alarm be late then.
constexpr duration brief = std::chrono::milliseconds{100};

timespec timespec_of(duration d) noexcept {
  const auto whole = std::chrono::floor<std::chrono::seconds>(d);
  return {static_cast<std::time_t>(whole.count()),
          static_cast<long>((d - whole).count())};
}

// A bell to wait for, and for those who sleep long a timer, which knows of
// suspension as the time-out of poll() and a condition variable do not. One
// timer could be both, rung by setting it to a moment that is over; but that
// takes an interrupt, ten times what ringing the bell costs.
class boot_alarm final : public alarm {
 public:
  boot_alarm() {
    if (!bell_.works()) {
      throw std::system_error{errno, std::generic_category(), "eventfd"};
    }
  }
  ~boot_alarm() override {
    if (timer_ >= 0) {
      ::close(timer_);
    }
  }
  boot_alarm(const boot_alarm&) = delete;
  boot_alarm& operator=(const boot_alarm&) = delete;

  bool wait_until(time_point until) override {
    for (bool long_already = false;; long_already = true) {
      const time_point now = read_boot_time();
      if (now >= until) {
        return bell_.silence();
      }
      if (long_already && until > now + brief && set_timer(until)) {
        sleep(nullptr);
      } else {
        const auto pause = timespec_of(std::min(until, now + brief) - now);
        sleep(&pause);
      }
      if (bell_.silence()) {
        return true;
      }
    }
  }

  void ring() noexcept override { bell_.ring(); }

 private:
  // False without a descriptor for it: brief sleeps will do.
  bool set_timer(time_point at) noexcept {
    if (timer_ < 0) {
      timer_ = ::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    }
    const itimerspec t{{}, timespec_of(at.time_since_epoch())};
    return ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &t, nullptr) == 0;
  }

  // Until the bell, the timer, the pause, or a signal.
  void sleep(const timespec* pause) const noexcept {
    pollfd both[] = {{bell_.fd(), POLLIN, 0}, {timer_, POLLIN, 0}};
    ::ppoll(both, pause == nullptr ? 2 : 1, pause, nullptr);
  }

  const event_bell bell_;
  int timer_{-1};
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

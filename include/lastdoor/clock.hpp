// clock.hpp: the one source of time, injected everywhere.
//
// Invariants
//   - Time is CLOCK_BOOTTIME: it never follows the wall clock, and it counts
//     suspend, which steady_clock on Linux does not. A lease that ran out
//     while the laptop slept is over when it wakes.
//   - No validity decision anywhere in lastdoor uses another clock.
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <chrono>
#include <memory>

namespace lastdoor {

using duration = std::chrono::nanoseconds;

/// A duration from a caller, of any unit. What nanoseconds cannot hold
/// becomes the end of their range: `std::chrono::hours::max()` is a long
/// time here, where a plain conversion would overflow to minus one hour.
struct any_duration : duration {
  constexpr any_duration() noexcept : duration{0} {}
  template <class Rep, class Period>
  constexpr any_duration(std::chrono::duration<Rep, Period> d) noexcept
      : duration{within_range(d)} {}

 private:
  template <class Rep, class Period>
  static constexpr duration within_range(std::chrono::duration<Rep, Period> d) {
    const auto ns = std::chrono::duration<long double, std::nano>{d}.count();
    // Negated comparisons, so that a NaN ends up below as well.
    if (!(ns > static_cast<long double>(duration::min().count())))
      return duration::min();
    if (!(ns < static_cast<long double>(duration::max().count())))
      return duration::max();
    return std::chrono::duration_cast<duration>(d);
  }
};

/// Tag type of lastdoor's time points; see `clock` for how to read one.
struct boot_time {
  using duration = lastdoor::duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<boot_time>;
  static constexpr bool is_steady = true;
};
using time_point = boot_time::time_point;

/// A one-slot bell: a thread sleeps on it until a time or until it is rung.
class alarm {
 public:
  virtual ~alarm() = default;
  /// Blocks until `ring()` was called (also before the wait) or `until` has
  /// come. True when rung; the ring is consumed. One waiter at a time.
  virtual bool wait_until(time_point until) = 0;
  /// Wakes the waiter, or the next one to come. Safe from any thread.
  virtual void ring() noexcept = 0;
};

class clock {
 public:
  virtual ~clock() = default;
  [[nodiscard]] virtual time_point now() const noexcept = 0;
  /// A bell that sleeps by this clock. Throws std::system_error when the
  /// process is out of file descriptors.
  [[nodiscard]] virtual std::unique_ptr<alarm> make_alarm() = 0;
};

/// CLOCK_BOOTTIME. One object for the life of the process. Its alarms may be
/// 100 ms late when the machine was suspended meanwhile.
[[nodiscard]] const std::shared_ptr<clock>& boot_clock();

}  // namespace lastdoor

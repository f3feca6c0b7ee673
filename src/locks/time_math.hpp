// time_math.hpp: sums of times that end at the edge instead of overflowing,
// so that a caller may ask for a wait of years without wrapping into the past.
#pragma once

#include <lastdoor/clock.hpp>

namespace lastdoor::detail {

[[nodiscard]] constexpr duration sum(duration a, duration b) noexcept {
  duration::rep out = 0;
  if (__builtin_add_overflow(a.count(), b.count(), &out))
    return b.count() < 0 ? duration::min() : duration::max();
  return duration{out};
}

[[nodiscard]] constexpr duration twice(duration d) noexcept {
  return sum(d, d);
}

[[nodiscard]] constexpr time_point later(time_point t, duration by) noexcept {
  return time_point{sum(t.time_since_epoch(), by)};
}

}  // namespace lastdoor::detail

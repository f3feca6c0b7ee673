// backoff.hpp: pauses that grow up to a cap, each random in [0, limit), so
// that processes which failed together do not come back together.
//
// Thread safety: none; one backoff belongs to one waiter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <lastdoor/lock_service.hpp>

#include "time_math.hpp"

namespace lastdoor::detail {

class backoff {
 public:
  /// Requires: 0 < options.first <= options.cap.
  backoff(const backoff_options& options, std::uint64_t seed) noexcept
      : first_{options.first}, cap_{options.cap}, state_{seed} {}

  [[nodiscard]] duration next() noexcept {
    const duration limit = limit_;
    limit_ = std::min(twice(limit_), cap_);
    const auto range = static_cast<std::uint64_t>(limit.count());
    return duration{static_cast<duration::rep>(draw() % range)};
  }

  void reset() noexcept { limit_ = first_; }

 private:
  // SplitMix64: eight bytes of state, and any seed is a good one.
  std::uint64_t draw() noexcept {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }

  duration first_;
  duration cap_;
  duration limit_{first_};
  std::uint64_t state_;
};

}  // namespace lastdoor::detail

// entropy.hpp: random bytes from the kernel, never from anything a copy of
// the process would share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lastdoor::detail {

/// Fills all of `out`. False when the kernel has no generator.
[[nodiscard]] bool fill_random(std::span<std::byte> out) noexcept;

/// A start value for jitter. Falls back to the clock, because jitter needs
/// difference, not secrecy.
[[nodiscard]] std::uint64_t random_seed() noexcept;

}  // namespace lastdoor::detail

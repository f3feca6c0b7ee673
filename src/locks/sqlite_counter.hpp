// sqlite_counter.hpp: how tokens are drawn from a counter that is not synced
// for each of them. Pure: no database here.
//
// Invariants
//   - value <= reserved_until, and neither falls.
//   - A token is handed out only if a reservation that covers it is on the
//     disk, not merely written.
//
// Why no token repeats after a power cut. A commit that was not synced may
// be lost, and with it the newest values of the counter; a commit that was
// synced is not lost, nor is anything committed before it, because SQLite
// recovers a prefix of the log. Let r be the highest reservation that was
// synced. Each token handed out so far is at most r: it was covered by a
// synced reservation, and reservations only grow. What is recovered holds a
// reservation of r or more, in a row that names the old boot. The new boot
// starts at the end of the reservation it finds, so its first token is above
// r. Within one boot no power was cut, every process sees every commit, and
// the value itself is exact. A process that is killed loses nothing that was
// committed.
//
// Thread safety: values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <lastdoor/token.hpp>

namespace lastdoor {

struct token_counter {
  // How many tokens one sync pays for, and how many a reboot may skip.
  static constexpr std::int64_t block = 1000;

  std::int64_t value{0};
  std::int64_t reserved_until{0};
  // True when this boot made the reservation, so that `value` is exact.
  bool of_this_boot{true};

  // The state that is known not to repeat anything.
  [[nodiscard]] constexpr token_counter settled() const noexcept {
    return of_this_boot ? *this
                        : token_counter{reserved_until, reserved_until, true};
  }

  // True when the next token needs a reservation that is synced first.
  [[nodiscard]] constexpr bool needs_block() const noexcept {
    return !of_this_boot || value >= reserved_until;
  }

  // True when there is no next token. Asked before adding: an integer that
  // overflows in SQLite becomes a real number.
  [[nodiscard]] constexpr bool exhausted() const noexcept {
    return settled().value >= fencing_token::max;
  }

  // The state after one token was drawn; the token is its `value`.
  // Requires: !exhausted().
  [[nodiscard]] constexpr token_counter drawn() const noexcept {
    const token_counter now = settled();
    const auto next = now.value + 1;
    const auto reserved =
        next <= now.reserved_until
            ? now.reserved_until
            : now.value + std::min(block, fencing_token::max - now.value);
    return {next, reserved, true};
  }

  // The state whose next token is above `floor`. Never lower.
  [[nodiscard]] constexpr token_counter raised(mark floor) const noexcept {
    const token_counter now = settled();
    const auto last = std::max(now.value, floor.value());
    return {last, std::max(now.reserved_until, last), true};
  }

  // False for numbers that this type never makes.
  [[nodiscard]] constexpr bool plausible() const noexcept {
    return value >= 0 && value <= reserved_until &&
           reserved_until <= fencing_token::max;
  }

  friend constexpr bool operator==(const token_counter&,
                                   const token_counter&) = default;
};

}  // namespace lastdoor

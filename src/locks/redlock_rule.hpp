// redlock_rule.hpp: the token rule; pure, so that a test can try every case.
//
// N servers, Q = N/2 + 1. `answers` are the counter values of the servers
// that voted, |R| >= Q of them. t is the Q-th smallest, i the place of a
// server that answered exactly t. Once Q servers stand at t or above, the
// grant is done, and its token is 16 t + i. Why that is unique and ordered:
// models/README.md.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <lastdoor/token.hpp>
#include <optional>
#include <span>

namespace lastdoor::redlock {

inline constexpr unsigned most_servers = 15;
/// Fixed, so that tokens stay ordered when N changes.
inline constexpr std::int64_t places = 16;
inline constexpr std::int64_t highest_value = fencing_token::max / places;

[[nodiscard]] constexpr unsigned quorum(unsigned n) noexcept {
  return n / 2 + 1;
}
/// Servers of which one at least took part in any quorum: N - Q + 1.
[[nodiscard]] constexpr unsigned blocking(unsigned n) noexcept {
  return n - quorum(n) + 1;
}

struct choice {
  std::int64_t t;
  unsigned place;     // of a server that answered exactly t
  unsigned standing;  // servers that answered t or more
};

/// `answers[k]` is the answer of the server at place k, 0 for none. Nothing
/// when fewer than a quorum voted.
[[nodiscard]] inline std::optional<choice> choose(
    std::span<const std::int64_t> answers) {
  const auto n = static_cast<unsigned>(answers.size());
  std::array<std::int64_t, most_servers> sorted{};
  unsigned votes = 0;
  for (const auto a : answers) {
    if (a > 0) {
      sorted[votes++] = a;
    }
  }
  const unsigned q = quorum(n);
  if (votes < q) {
    return std::nullopt;
  }
  std::sort(sorted.begin(), sorted.begin() + votes);
  choice c{sorted[q - 1], n, 0};
  for (unsigned k = 0; k < n; ++k) {
    if (answers[k] == c.t && c.place == n) {
      c.place = k;
    }
    c.standing += answers[k] >= c.t ? 1U : 0U;
  }
  return c;
}

/// Requires: 1 <= t <= highest_value.
[[nodiscard]] inline std::int64_t token_of(const choice& c) noexcept {
  return places * c.t + c.place;
}

/// The counter value whose tokens, and all below, are at or below `m`.
[[nodiscard]] inline std::int64_t value_below(mark m) noexcept {
  return m.value() / places;
}

}  // namespace lastdoor::redlock

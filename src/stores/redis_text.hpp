// redis_text.hpp: values and conditions in the form in which Redis keeps and
// compares them.
//
// Thread safety: free functions.
#pragma once

#include <cstdint>
#include <lastdoor/stores/redis.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lastdoor {

// The whole number that this text is to Redis: no sign but '-', no leading
// zero, 64 bits.
[[nodiscard]] std::optional<std::int64_t> redis_integer(
    std::string_view text) noexcept;

// Lua's numbers are exact up to here.
[[nodiscard]] constexpr bool redis_countable(std::int64_t n) noexcept {
  return n <= fencing_token::max && n >= -fencing_token::max;
}

// Nothing for NULL and for numbers that are not finite.
[[nodiscard]] std::optional<std::string> redis_text(const value& v);

// The words of a step `if`; see redis_write.lua. `invalid_argument` for what
// cannot be compared.
[[nodiscard]] result<std::vector<std::string>> redis_condition(
    const condition& c);

}  // namespace lastdoor

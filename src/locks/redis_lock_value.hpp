// redis_lock_value.hpp: what stands in a lock's key.
//
// Thread safety: values.
#pragma once

#include <charconv>
#include <cstdint>
#include <lastdoor/token.hpp>
#include <optional>
#include <string_view>

namespace lastdoor {

// The three words of a lock's value; nothing when it is not one of ours.
struct lock_value {
  std::string_view owner;
  std::int64_t token;
  std::string_view holder;
};

[[nodiscard]] inline std::optional<lock_value> parse_value(
    std::string_view text) {
  lock_value v{};
  const auto first = text.find(' ');
  const auto second = text.find(' ', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos) {
    return std::nullopt;
  }
  v.owner = text.substr(0, first);
  const auto* end = text.data() + second;
  const auto [stop, ec] =
      std::from_chars(text.data() + first + 1, end, v.token);
  if (ec != std::errc{} || stop != end || !owner_id::parse(v.owner)) {
    return std::nullopt;
  }
  v.holder = text.substr(second + 1);
  return v;
}

}  // namespace lastdoor

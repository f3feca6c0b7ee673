#include "cli/durations.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>

namespace lastdoor::cli {

namespace {

struct unit {
  std::string_view name;
  std::int64_t ms;
};

// The largest first, for format_duration.
constexpr unit units[] = {
    {"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}};

std::optional<std::int64_t> ms_of(std::string_view name) {
  for (const unit& u : units) {
    if (u.name == name) {
      return u.ms;
    }
  }
  return std::nullopt;
}

}  // namespace

result<duration> parse_duration(std::string_view option,
                                std::string_view text) {
  const auto refuse = [&](std::string_view why) -> error {
    return fail(errc::invalid_argument,
                fmt::format("{}: '{}' {}; write it like 250ms, 5s, 2m or 1h",
                            option, text, why));
  };
  std::int64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, ec] = std::from_chars(text.data(), end, count);
  if (text.starts_with('-')) {
    return refuse("is negative");
  }
  if (ec == std::errc::invalid_argument) {
    return refuse("is no duration");
  }
  const std::string_view name{stop, static_cast<std::size_t>(end - stop)};
  if (name.empty()) {
    return refuse("has no unit");
  }
  const auto ms = ms_of(name);
  if (!ms) {
    return refuse("has an unknown unit");
  }
  constexpr std::int64_t most = duration::max().count() / 1'000'000;
  if (ec != std::errc{} || count > most / *ms) {
    return refuse("is too long");
  }
  return duration{std::chrono::milliseconds{count * *ms}};
}

std::int64_t whole_ms(duration d) noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
}

std::string format_duration(duration d) {
  const std::int64_t ms = whole_ms(d);
  for (const unit& u : units) {
    if (ms != 0 && ms % u.ms == 0) {
      return fmt::format("{}{}", ms / u.ms, u.name);
    }
  }
  return "0s";
}

}  // namespace lastdoor::cli

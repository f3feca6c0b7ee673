// durations.hpp: "250ms", "5s", "2m", "1h" on the command line.
//
// A bare number is refused: seconds to one reader are milliseconds to the
// next, and a lease that is a thousand times too long or too short is found
// out in production.
#pragma once

#include <lastdoor/clock.hpp>
#include <lastdoor/errors.hpp>
#include <string>
#include <string_view>

namespace lastdoor::cli {

// Digits and one unit of ms, s, m, h; nothing else. `option` starts the
// message of an `invalid_argument`: "--ttl".
[[nodiscard]] result<duration> parse_duration(std::string_view option,
                                              std::string_view text);

// The largest unit that says it exactly: 1500ms, 90s, 2m. What is below a
// millisecond is cut off.
[[nodiscard]] std::string format_duration(duration d);

[[nodiscard]] std::int64_t whole_ms(duration d) noexcept;

}  // namespace lastdoor::cli

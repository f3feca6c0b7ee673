// report.hpp: what the demo shows, as text and as JSON.
#pragma once

#include <string>

#include "cli/demo/round.hpp"
#include "cli/output.hpp"

namespace lastdoor::cli {

enum class demo_verdict : std::uint8_t {
  shown,         // updates were lost without the fence, none with it
  inconclusive,  // it did not come to what was to be shown
  wrong,         // the fenced round is off: a bug
};

[[nodiscard]] demo_verdict judge_demo(const round_report& lock_only,
                                      const round_report& fenced) noexcept;

[[nodiscard]] json to_json(const round_report& r);
[[nodiscard]] std::string_view name_of(demo_verdict v) noexcept;

// The course of the kept pause, line by line.
[[nodiscard]] std::string timeline(const round_report& r, duration ttl);
[[nodiscard]] std::string comparison(const round_report& lock_only,
                                     const round_report& fenced);
[[nodiscard]] std::string verdict_text(const round_report& lock_only,
                                       const round_report& fenced);

}  // namespace lastdoor::cli

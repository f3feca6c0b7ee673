// run.hpp: the command `run`, as a function.
#pragma once

#include <functional>
#include <lastdoor/clock.hpp>
#include <lastdoor/errors.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "cli/run/supervisor.hpp"

namespace lastdoor::cli {

struct run_options {
  std::string locks;  // URL
  std::string store;  // URL; empty: no barrier
  std::string resource;
  std::string holder;
  duration ttl{std::chrono::seconds{10}};
  duration wait{0};
  std::optional<duration> grace;  // default: a quarter of the TTL, 10 s at most
  bool quiet{false};
  std::vector<std::string> command;
  // For tests: runs in the child before the last look at the clock.
  std::function<void()> before_exec;
};

// How the TTL is shared out: grace and safety come off its end and take half
// of it at most, so that renewals have room. `invalid_argument` otherwise.
[[nodiscard]] result<time_plan> plan_times(duration ttl,
                                           std::optional<duration> grace);

// Acquires, starts the command, stays with it, releases. Answers the exit
// code.
[[nodiscard]] int run_command(const run_options& o, const output& out);

}  // namespace lastdoor::cli

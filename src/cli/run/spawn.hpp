// spawn.hpp: starts the command of `run`.
//
// Invariants
//   - The child's environment is ours plus LASTDOOR_RESOURCE, _TOKEN, _OWNER
//     and _SOURCE; descriptors 0, 1 and 2 are all it inherits; mask and
//     dispositions of signals are those the tool was started with.
//   - It leads a process group of its own and dies (KILL) with the tool.
//   - The validity of the grant is looked at in the child, as the last thing
//     before exec. A child that comes too late never runs the command.
//   - No shell: the command is executed as it is.
//
// The parent has threads, so between fork and exec the child calls only what
// is async-signal-safe; everything else is prepared before.
#pragma once

#include <sys/types.h>

#include <functional>
#include <lastdoor/grant.hpp>
#include <string>
#include <vector>

#include "cli/run/signals.hpp"

namespace lastdoor::cli {

struct start_request {
  const std::vector<std::string>& command;  // not empty
  const lastdoor::grant& grant;
  const signal_inbox& signals;
  time_point start_before;  // the command must be running by then
  // For tests: runs in the child before the last look at the clock.
  std::function<void()> before_exec;
};

// What a child that could not become the command had to say.
enum class start_problem : std::uint8_t { none, too_late, exec_failed };

struct start_report {
  start_problem problem{start_problem::none};
  int error_number{0};
};

class started_child {
 public:
  started_child(pid_t pid, descriptor report) noexcept
      : pid_{pid}, report_{std::move(report)} {}
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  // Readable when the command runs, or will not run; then call `outcome`.
  [[nodiscard]] int report_fd() const noexcept { return report_.get(); }
  [[nodiscard]] start_report outcome() noexcept;

 private:
  pid_t pid_;
  descriptor report_;
};

// Forks. `unavailable` when the kernel has no process or descriptor left.
[[nodiscard]] result<started_child> start(const start_request& r);

}  // namespace lastdoor::cli

// terminal.hpp: lends the controlling terminal to the command of `run`.
//
// The command has a process group of its own, and so starts in the
// background of a terminal. Most commands never notice. One that reads from
// the terminal or changes its modes is stopped by the kernel (SIGTTIN,
// SIGTTOU); that is when it gets the terminal, and not before: taken at the
// start, it would be missing in the pager at the other end of a pipeline.
//
// Thread safety: one thread.
#pragma once

#include <sys/types.h>
#include <termios.h>

#include <optional>

#include "cli/run/signals.hpp"

namespace lastdoor::cli {

class terminal {
 public:
  // Without a controlling terminal every call below does nothing.
  terminal() noexcept;

  // Makes `group` the foreground group if ours is it now. True when done.
  bool lend(pid_t group) noexcept;
  [[nodiscard]] bool is_lent() const noexcept { return modes_.has_value(); }
  // Makes our group the foreground group again; `restore_modes` when the
  // borrower could not clean up itself.
  void take_back(bool restore_modes) noexcept;

 private:
  descriptor tty_;
  std::optional<termios> modes_;  // from when it was lent
};

}  // namespace lastdoor::cli

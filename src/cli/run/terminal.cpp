#include "cli/run/terminal.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace lastdoor::cli {

terminal::terminal() noexcept
    : tty_{::open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY)} {}

bool terminal::lend(pid_t group) noexcept {
  if (!tty_.is_open() || ::tcgetpgrp(tty_.get()) != ::getpgrp()) {
    return false;
  }
  termios now{};
  if (::tcgetattr(tty_.get(), &now) != 0 ||
      ::tcsetpgrp(tty_.get(), group) != 0) {
    return false;
  }
  modes_ = now;
  return true;
}

void terminal::take_back(bool restore_modes) noexcept {
  if (!modes_) {
    return;
  }
  ::tcsetpgrp(tty_.get(), ::getpgrp());
  if (restore_modes) {
    ::tcsetattr(tty_.get(), TCSADRAIN, &*modes_);
  }
  modes_.reset();
}

}  // namespace lastdoor::cli

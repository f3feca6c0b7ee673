// signals.hpp: signals as something to read, not something that happens.
//
// Invariants
//   - Signals of an inbox are blocked in every thread of the process: the
//     inbox is opened before anything starts a thread. So no signal is lost,
//     none interrupts a driver, and none arrives between a check and its act.
//   - A signal that was ignored when the tool started (nohup) stays ignored.
//   - The mask and dispositions from before are kept for the child.
//
// Thread safety: one thread.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <initializer_list>
#include <lastdoor/errors.hpp>
#include <optional>
#include <stop_token>
#include <string_view>
#include <utility>

namespace lastdoor::cli {

// A descriptor that closes itself.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) noexcept : fd_{fd} {}
  descriptor(descriptor&& other) noexcept : fd_{std::exchange(other.fd_, -1)} {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~descriptor() { reset(); }
  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

 private:
  int fd_{-1};
};

// A bell between threads of the process, for poll(): rung, it is readable
// until it is hushed.
class bell {
 public:
  [[nodiscard]] static result<bell> make();
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  void ring() const noexcept;
  void hush() const noexcept;

 private:
  explicit bell(descriptor fd) noexcept : fd_{std::move(fd)} {}
  descriptor fd_;
};

class signal_inbox {
 public:
  // Blocked besides: SIGPIPE, so that a closed stdout is a write error and not
  // the end; SIGTTOU, so that the terminal can be taken back.
  // `unavailable` when the kernel has no descriptor left.
  [[nodiscard]] static result<signal_inbox> open(
      std::initializer_list<int> signals);

  // Puts the mask and the disposition of SIGCHLD back.
  ~signal_inbox();
  signal_inbox(signal_inbox&& other) noexcept;
  signal_inbox& operator=(signal_inbox&&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  // The next signal, or 0. Never waits.
  [[nodiscard]] int next() const noexcept;

  // Runs `work` in a thread of its own. The first signal that would end a
  // process asks it to stop, through the token; that signal is answered when
  // the work has returned.
  [[nodiscard]] std::optional<int> until_done(
      const std::function<void(std::stop_token)>& work) const;

  // For the child: how things were before.
  [[nodiscard]] const sigset_t& mask_before() const noexcept { return before_; }
  [[nodiscard]] const struct sigaction& child_action_before() const noexcept {
    return child_before_;
  }

 private:
  signal_inbox() = default;

  descriptor fd_;
  sigset_t before_{};
  struct sigaction child_before_ {};
  bool active_{false};
};

// The error of a wait that a signal ended.
[[nodiscard]] error interrupted_by(int signal, std::string_view resource);

// "SIGTERM"; "signal 42" for one without a name.
[[nodiscard]] std::string signal_name(int signal);

// Stops this process as an uncaught SIGTSTP would; returns when it is
// continued.
void stop_self() noexcept;

}  // namespace lastdoor::cli

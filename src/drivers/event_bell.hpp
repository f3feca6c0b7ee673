// event_bell.hpp: wakes a thread that sleeps in poll().
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace lastdoor {

class event_bell {
 public:
  event_bell() noexcept : fd_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {}
  event_bell(const event_bell&) = delete;
  event_bell& operator=(const event_bell&) = delete;
  ~event_bell() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  // False when the process was out of file descriptors: it never rings.
  [[nodiscard]] bool works() const noexcept { return fd_ >= 0; }
  // Readable while it rings.
  [[nodiscard]] int fd() const noexcept { return fd_; }

  void ring() const noexcept {
    const std::uint64_t one = 1;
    // Can only fail when it rings already.
    static_cast<void>(::write(fd_, &one, sizeof one) > 0);
  }
  // True when it rang.
  bool silence() const noexcept {
    std::uint64_t count = 0;
    return ::read(fd_, &count, sizeof count) > 0;
  }

 private:
  const int fd_;
};

}  // namespace lastdoor

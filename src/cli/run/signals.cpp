#include "cli/run/signals.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <exception>
#include <thread>

namespace lastdoor::cli {

namespace {

error no_descriptor(std::string_view what) {
  return fail(errc::unavailable,
              fmt::format("{}: {}", what, std::strerror(errno)));
}

bool is_ignored(int signal) noexcept {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 &&
         (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN;
}

// What a process that does nothing about it would die of.
bool ends_a_process(int signal) noexcept {
  switch (signal) {
    case SIGCHLD:
    case SIGCONT:
    case SIGWINCH:
    case SIGTSTP:
      return false;
    default:
      return true;
  }
}

}  // namespace

void descriptor::reset() noexcept {
  if (fd_ >= 0) {
    ::close(std::exchange(fd_, -1));
  }
}

result<bell> bell::make() {
  descriptor fd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!fd.is_open()) {
    return no_descriptor("eventfd");
  }
  return bell{std::move(fd)};
}

void bell::ring() const noexcept {
  const std::uint64_t one = 1;
  // It can only fail when it has been rung 2^64 times; it is readable then.
  [[maybe_unused]] const auto n = ::write(fd_.get(), &one, sizeof one);
}

void bell::hush() const noexcept {
  std::uint64_t rung = 0;
  [[maybe_unused]] const auto n = ::read(fd_.get(), &rung, sizeof rung);
}

result<signal_inbox> signal_inbox::open(std::initializer_list<int> signals) {
  signal_inbox inbox;
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int s : signals) {
    if (s == SIGCHLD || !is_ignored(s)) {
      ::sigaddset(&wanted, s);
    }
  }
  sigset_t blocked = wanted;
  ::sigaddset(&blocked, SIGPIPE);
  ::sigaddset(&blocked, SIGTTOU);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &inbox.before_);
  // With SIGCHLD ignored the kernel would reap children behind our back and
  // their exit codes would be gone.
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &plain, &inbox.child_before_);
  inbox.active_ = true;
  inbox.fd_ = descriptor{::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK)};
  if (!inbox.fd_.is_open()) {
    return no_descriptor("signalfd");
  }
  return inbox;
}

signal_inbox::signal_inbox(signal_inbox&& other) noexcept
    : fd_{std::move(other.fd_)},
      before_{other.before_},
      child_before_{other.child_before_},
      active_{std::exchange(other.active_, false)} {}

signal_inbox::~signal_inbox() {
  if (active_) {
    ::sigaction(SIGCHLD, &child_before_, nullptr);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
}

int signal_inbox::next() const noexcept {
  signalfd_siginfo info{};
  const auto n = ::read(fd_.get(), &info, sizeof info);
  return n == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

std::optional<int> signal_inbox::until_done(
    const std::function<void(std::stop_token)>& work) const {
  auto done = bell::make().value();
  std::stop_source stop;
  std::exception_ptr thrown;
  std::thread worker{[&] {
    try {
      work(stop.get_token());
    } catch (...) {
      thrown = std::current_exception();
    }
    done.ring();
  }};
  std::optional<int> first;
  for (bool working = true; working;) {
    pollfd watched[] = {{fd_.get(), POLLIN, 0}, {done.fd(), POLLIN, 0}};
    if (::poll(watched, 2, -1) < 0) {
      continue;  // EINTR: stopped and continued
    }
    while (const int s = next()) {
      if (s == SIGTSTP) {
        stop_self();
      } else if (ends_a_process(s)) {
        first = first.value_or(s);
        stop.request_stop();
      }
    }
    working = (watched[1].revents & POLLIN) == 0;
  }
  worker.join();
  if (thrown) {
    std::rethrow_exception(thrown);
  }
  return first;
}

error interrupted_by(int signal, std::string_view resource) {
  return fail(errc::canceled, fmt::format("interrupted by {} before the lock "
                                          "was granted; nothing was started",
                                          signal_name(signal)))
      .about(resource);
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("SIG{}", name)
                         : fmt::format("signal {}", signal);
}

void stop_self() noexcept { ::kill(::getpid(), SIGSTOP); }

}  // namespace lastdoor::cli

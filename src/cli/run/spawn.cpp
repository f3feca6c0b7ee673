#include "cli/run/spawn.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>

extern char** environ;  // NOLINT: the name is POSIX's

namespace lastdoor::cli {

namespace {

// Everything the child needs, made before the fork.
struct child_plan {
  std::vector<std::string> arguments, environment, paths;
  std::vector<char*> argv, envp;
  pid_t parent;
  int report;
  time_point start_before;
  const signal_inbox* signals;
  const std::function<void()>* before_exec;
};

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (std::string& s : strings) {
    out.push_back(s.data());
  }
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> environment_with(const grant& g) {
  const std::string own[] = {"LASTDOOR_RESOURCE=", "LASTDOOR_TOKEN=",
                             "LASTDOOR_OWNER=", "LASTDOOR_SOURCE="};
  std::vector<std::string> out;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string_view entry{*at};
    bool ours = false;
    for (const std::string& name : own) {
      ours = ours || entry.starts_with(name);
    }
    if (!ours) {
      out.emplace_back(entry);
    }
  }
  out.push_back(own[0] + g.resource().str());
  out.push_back(own[1] + g.token().to_string());
  out.push_back(own[2] + g.owner().str());
  out.push_back(own[3] + g.source().str());
  return out;
}

// Where the command may lie, in order, as execvp would look.
std::vector<std::string> candidates(const std::string& command) {
  if (command.find('/') != std::string::npos) {
    return {command};
  }
  const char* found = std::getenv("PATH");
  const std::string_view path = found != nullptr ? found : "/bin:/usr/bin";
  std::vector<std::string> out;
  for (std::size_t at = 0; at <= path.size() && !command.empty();) {
    const auto end = std::min(path.find(':', at), path.size());
    const auto folder = path.substr(at, end - at);
    out.push_back(folder.empty() ? command
                                 : fmt::format("{}/{}", folder, command));
    at = end + 1;
  }
  return out;
}

// ---- From here on in the child: async-signal-safe calls only. ----

[[noreturn]] void give_up(const child_plan& p, start_problem what,
                          int number) noexcept {
  const start_report report{what, number};
  [[maybe_unused]] const auto n = ::write(p.report, &report, sizeof report);
  ::_exit(127);
}

time_point boot_now() noexcept {
  timespec t{};
  ::clock_gettime(CLOCK_BOOTTIME, &t);
  return time_point{std::chrono::seconds{t.tv_sec} +
                    std::chrono::nanoseconds{t.tv_nsec}};
}

// Marked, not closed: the report must go through until exec succeeds.
void close_on_exec_from_3() noexcept {
#ifdef SYS_close_range
  constexpr unsigned cloexec = 1U << 2;  // CLOSE_RANGE_CLOEXEC
  if (::syscall(SYS_close_range, 3U, UINT_MAX, cloexec) == 0) {
    return;
  }
#endif
  // Before Linux 5.11: one by one.
  const long limit = ::sysconf(_SC_OPEN_MAX);
  for (int fd = 3; fd < limit; ++fd) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

void restore_signals(const child_plan& p) noexcept {
  const struct sigaction before = p.signals->child_action_before();
  ::sigaction(SIGCHLD, &before, nullptr);
  ::sigprocmask(SIG_SETMASK, &p.signals->mask_before(), nullptr);
}

[[noreturn]] void become(const child_plan& p) noexcept {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != p.parent) {
    ::_exit(127);  // the tool died before the line above
  }
  close_on_exec_from_3();
  if (*p.before_exec) {
    (*p.before_exec)();
  }
  restore_signals(p);
  if (boot_now() >= p.start_before) {
    give_up(p, start_problem::too_late, 0);
  }
  // "Not there" only if no candidate was there; one that may not be executed
  // counts as there.
  int number = ENOENT;
  for (const std::string& path : p.paths) {
    ::execve(path.c_str(), p.argv.data(), p.envp.data());
    if (errno == EACCES) {
      number = EACCES;
    } else if (errno != ENOENT && errno != ENOTDIR) {
      number = errno;
      break;
    }
  }
  give_up(p, start_problem::exec_failed, number);
}

}  // namespace

result<started_child> start(const start_request& r) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return fail(errc::unavailable,
                fmt::format("pipe: {}", std::strerror(errno)));
  }
  descriptor read_end{ends[0]};
  const descriptor write_end{ends[1]};
  child_plan plan{r.command,
                  environment_with(r.grant),
                  candidates(r.command.front()),
                  {},
                  {},
                  ::getpid(),
                  write_end.get(),
                  r.start_before,
                  &r.signals,
                  &r.before_exec};
  plan.argv = pointers(plan.arguments);
  plan.envp = pointers(plan.environment);
  const pid_t pid = ::fork();
  if (pid < 0) {
    return fail(errc::unavailable,
                fmt::format("fork: {}", std::strerror(errno)));
  }
  if (pid == 0) {
    become(plan);
  }
  // Here and in the child, so that it holds whoever comes first. After the
  // exec it fails here, and has been done there.
  ::setpgid(pid, pid);
  return started_child{pid, std::move(read_end)};
}

start_report started_child::outcome() noexcept {
  start_report report;
  const auto n = ::read(report_.get(), &report, sizeof report);
  report_.reset();
  return n == sizeof report ? report : start_report{};
}

}  // namespace lastdoor::cli

#include "cli/demo/worker_process.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <utility>

#include "cli/demo/worker.hpp"
#include "cli/run/process_tree.hpp"

extern char** environ;  // NOLINT: the name is POSIX's

namespace lastdoor::cli {

namespace {

error no_worker(std::string_view what, int number) {
  return fail(errc::unavailable, fmt::format("starting a worker: {}: {}", what,
                                             std::strerror(number)));
}

struct pipe_ends {
  descriptor read, write;
};

result<pipe_ends> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return no_worker("pipe", errno);
  }
  return pipe_ends{descriptor{ends[0]}, descriptor{ends[1]}};
}

// posix_spawn's two objects, destroyed in every case.
class spawn_plan {
 public:
  spawn_plan(int input, int out) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions_, out, STDOUT_FILENO);
    ::posix_spawnattr_init(&attributes_);
    // A group of its own: Ctrl-C is for the coordinator, which cleans up.
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    sigset_t none;
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setflags(&attributes_,
                               POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  }
  ~spawn_plan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  spawn_plan(const spawn_plan&) = delete;
  spawn_plan& operator=(const spawn_plan&) = delete;

  int run(pid_t& pid) {
    std::string name = "lastdoor";
    std::string command = demo_worker_command;
    char* argv[] = {name.data(), command.data(), nullptr};
    return ::posix_spawn(&pid, "/proc/self/exe", &actions_, &attributes_, argv,
                         environ);
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

struct close_dir {
  void operator()(DIR* d) const noexcept { ::closedir(d); }
};

// A stopped process whose other threads ran on would not be paused at all.
bool every_thread_is_stopped(pid_t pid) {
  const std::string tasks = fmt::format("/proc/{}/task", pid);
  const std::unique_ptr<DIR, close_dir> dir{::opendir(tasks.c_str())};
  bool any = false;
  while (dir != nullptr) {
    const dirent* entry = ::readdir(dir.get());
    if (entry == nullptr) {
      break;
    }
    if (entry->d_name[0] == '.') {
      continue;
    }
    const auto thread = look_at_thread(pid, entry->d_name);
    if (!thread || thread->state != 'T') {
      return false;
    }
    any = true;
  }
  return any;
}

}  // namespace

worker_process::worker_process(pid_t pid, descriptor orders,
                               descriptor events) noexcept
    : pid_{pid}, orders_{std::move(orders)}, events_{std::move(events)} {}

worker_process::worker_process(worker_process&& other) noexcept
    : pid_{std::exchange(other.pid_, -1)},
      orders_{std::move(other.orders_)},
      events_{std::move(other.events_)},
      unfinished_{std::move(other.unfinished_)} {}

worker_process::~worker_process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);  // also takes a stopped one
    reap();
  }
}

result<worker_process> worker_process::start(
    const demo_orders_to_worker& orders) {
  auto input = make_pipe();
  if (!input) {
    return input.error();
  }
  auto out = make_pipe();
  if (!out) {
    return out.error();
  }
  pid_t pid = -1;
  const int rc = spawn_plan{input->read.get(), out->write.get()}.run(pid);
  if (rc != 0) {
    return no_worker("posix_spawn", rc);
  }
  ::fcntl(out->read.get(), F_SETFL, O_NONBLOCK);
  worker_process w{pid, std::move(input->write), std::move(out->read)};
  // Shorter than a pipe is deep, so this never waits.
  const std::string line = to_line(orders);
  if (::write(w.orders_.get(), line.data(), line.size()) < 0) {
    return no_worker("write", errno);
  }
  return w;
}

std::vector<demo_event> worker_process::read_events() {
  std::array<char, 4096> text{};
  for (;;) {
    const auto n = ::read(events_.get(), text.data(), text.size());
    if (n > 0) {
      unfinished_.append(text.data(), static_cast<std::size_t>(n));
      continue;
    }
    if (n == 0) {
      events_.reset();
    }
    break;
  }
  std::vector<demo_event> all;
  std::size_t at = 0;
  for (auto end = unfinished_.find('\n'); end != std::string::npos;
       end = unfinished_.find('\n', at)) {
    if (auto e =
            parse_event(std::string_view{unfinished_}.substr(at, end - at))) {
      all.push_back(std::move(*e));
    }
    at = end + 1;
  }
  unfinished_.erase(0, at);
  return all;
}

void worker_process::tell(char order) noexcept {
  // A worker that is gone shows at its other end.
  [[maybe_unused]] const auto n = ::write(orders_.get(), &order, 1);
}

bool worker_process::stop() noexcept {
  if (::kill(pid_, SIGSTOP) != 0) {
    return false;
  }
  siginfo_t info{};
  // Returns when all of it has stopped, or when it has ended.
  while (::waitid(P_PID, static_cast<id_t>(pid_), &info,
                  WSTOPPED | WEXITED | WNOWAIT) != 0) {
    if (errno != EINTR) {
      return false;
    }
  }
  return info.si_code == CLD_STOPPED && every_thread_is_stopped(pid_);
}

void worker_process::resume() noexcept { ::kill(pid_, SIGCONT); }

int worker_process::reap() noexcept {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return status;
}

}  // namespace lastdoor::cli

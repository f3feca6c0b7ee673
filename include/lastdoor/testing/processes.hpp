// processes.hpp: processes and folders for tests.
//
// A guarantee between processes is tested with processes. They are forked
// from the test while it has one thread and no open back end or store, and
// leave by _exit, so that nothing of the test framework runs twice.
//
// Thread safety: one thread at a time.
// Lifetime: a child never outlives its object, nor the test.
//
// Example:
//
//   child_process<std::int64_t> child{[&](const auto& report) {
//     report(open().acquire("a").token());
//     ::pause();
//     return 0;
//   }};
//   auto token = child.next();
//   child.kill();
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace lastdoor::testing {

/// A child that sends records of one type to its parent.
template <class Record>
class child_process {
  static_assert(std::is_trivially_copyable_v<Record>);

 public:
  using reporter = std::function<void(const Record&)>;

  /// Forks and runs `body(report)` in the child; what it returns is the exit
  /// code. An exception ends the child with code 99.
  /// Throws std::system_error when there can be no child.
  template <class Body>
  explicit child_process(const Body& body) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0)
      throw std::system_error{errno, std::generic_category(), "pipe2"};
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0)
      throw std::system_error{errno, std::generic_category(), "fork"};
    if (pid_ == 0) {
      ::close(ends[0]);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent)
        ::_exit(98);
      ::_exit(run(body, ends[1]));
    }
    ::close(ends[1]);
    from_child_ = ends[0];
  }

  child_process(child_process&& other) noexcept
      : pid_{std::exchange(other.pid_, -1)},
        from_child_{std::exchange(other.from_child_, -1)},
        status_{other.status_} {}
  child_process& operator=(child_process&&) = delete;
  ~child_process() {
    if (pid_ > 0)
      kill();
    if (from_child_ >= 0)
      ::close(from_child_);
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  /// The next record, waiting for it. Nothing once the child is gone.
  [[nodiscard]] std::optional<Record> next() {
    Record record;
    if (!read_all(&record, sizeof record))
      return std::nullopt;
    return record;
  }

  /// All records that are still to come.
  [[nodiscard]] std::vector<Record> rest() {
    std::vector<Record> all;
    while (auto record = next())
      all.push_back(*record);
    return all;
  }

  void signal(int number) const noexcept {
    if (pid_ > 0)
      ::kill(pid_, number);
  }

  /// Kills it as nothing can prevent, and waits until it is gone.
  void kill() {
    signal(SIGKILL);
    wait();
  }

  /// Waits for its end: the exit code, or 128 + the signal.
  int wait() {
    if (pid_ > 0) {
      int status = 0;
      while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
      }
      status_ =
          WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      pid_ = -1;
    }
    return status_;
  }

 private:
  template <class Body>
  static int run(const Body& body, int to_parent) noexcept {
    try {
      return body(reporter{[to_parent](const Record& record) {
        // A pipe takes so little at once or not at all.
        static_assert(sizeof record <= 4096);
        if (::write(to_parent, &record, sizeof record) !=
            static_cast<ssize_t>(sizeof record))
          ::_exit(97);
      }});
    } catch (const std::exception& e) {
      std::fprintf(stderr, "child %d: %s\n", ::getpid(), e.what());
    } catch (...) {
      std::fprintf(stderr, "child %d: unknown exception\n", ::getpid());
    }
    return 99;
  }

  bool read_all(void* to, std::size_t bytes) {
    auto* at = static_cast<char*>(to);
    while (bytes > 0) {
      const ssize_t n = ::read(from_child_, at, bytes);
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return false;
      at += n;
      bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }

  pid_t pid_{-1};
  int from_child_{-1};
  int status_{-1};
};

/// A new empty folder, gone with the object.
class temp_folder {
 public:
  temp_folder() {
    auto name =
        (std::filesystem::temp_directory_path() / "lastdoor-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw std::system_error{errno, std::generic_category(), "mkdtemp"};
    path_ = name;
  }
  temp_folder(const temp_folder&) = delete;
  temp_folder& operator=(const temp_folder&) = delete;
  ~temp_folder() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept {
    return path_;
  }
  [[nodiscard]] std::string operator/(std::string_view name) const {
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lastdoor::testing

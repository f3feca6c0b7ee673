// server_process.hpp: a server program as a child process of a test.
//
// The child runs as an ordinary user even when the tests run as root (some
// servers refuse root), writes its output to a log file, keeps none of our
// descriptors, and is killed by the kernel if the test program dies.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lastdoor::support {

using argument_list = std::vector<std::string>;

/// Who runs servers: ourselves, or an unprivileged user when we are root.
struct account {
  uid_t uid;
  gid_t gid;
  std::string name;
};
[[nodiscard]] const account& server_account();

/// A folder of its own below the temporary folder, short enough for Unix
/// sockets, owned by `server_account()`. Removed with the object.
class temp_folder {
 public:
  explicit temp_folder(const std::string& prefix);
  ~temp_folder();
  temp_folder(const temp_folder&) = delete;
  temp_folder& operator=(const temp_folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept {
    return path_;
  }

 private:
  std::filesystem::path path_;
};

/// Gives a file or a whole folder to `server_account()`.
void give_to_server(const std::filesystem::path& path);

/// One child process. The destructor kills it.
class server_process {
 public:
  /// Starts `arguments[0]`, an absolute path. Throws std::system_error.
  server_process(const argument_list& arguments,
                 const std::filesystem::path& log);
  ~server_process();
  server_process(const server_process&) = delete;
  server_process& operator=(const server_process&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  /// The exit status as waitpid reports it, once it has ended.
  [[nodiscard]] std::optional<int> ended();
  void signal(int number) const noexcept;
  /// Sends the signal and waits for the end; SIGKILL after `patience`.
  void stop(int number, std::chrono::seconds patience);
  /// SIGKILL to it and all of its children at one stroke, as a power cut
  /// would; returns when all are gone.
  void kill_all() noexcept;
  /// The processes that it started and that still run.
  [[nodiscard]] std::vector<pid_t> children() const;

 private:
  pid_t pid_;
  std::optional<int> status_;
};

/// Runs a program to its end. Throws std::runtime_error, with the log, when
/// it does not succeed.
void run_program(const argument_list& arguments,
                 const std::filesystem::path& log);

/// Polls until `condition` holds; false when it does not within `patience`.
[[nodiscard]] bool eventually(
    const std::function<bool()>& condition,
    std::chrono::milliseconds patience = std::chrono::seconds{30});

/// A loopback port that was free a moment ago.
[[nodiscard]] int free_port();

[[nodiscard]] std::string text_of(const std::filesystem::path& file);

/// True when LASTDOOR_REQUIRE_SERVERS=1: a missing server is a failure.
[[nodiscard]] bool servers_required();

}  // namespace lastdoor::support

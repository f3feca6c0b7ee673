// tool_process.hpp: the real executable, run by a test.
//
// Output goes to files, so that a descendant that keeps a descriptor open
// cannot keep a test waiting. Whatever a test starts is dead when it ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lastdoor::support {

class temp_folder {
 public:
  temp_folder();
  ~temp_folder();
  temp_folder(const temp_folder&) = delete;
  temp_folder& operator=(const temp_folder&) = delete;
  [[nodiscard]] std::string operator/(std::string_view name) const {
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

// Looks again and again until it holds; false when it never did.
[[nodiscard]] bool eventually(
    const std::function<bool()>& holds,
    std::chrono::seconds at_most = std::chrono::seconds{30});

[[nodiscard]] std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view text);
// The number in a file that another process writes; 0 while there is none.
[[nodiscard]] pid_t pid_in(const std::string& path);

/// False, and nothing is sent, unless `pid` is one process: 0 and -1, as left
/// by a failed start, would reach the test's own group or everybody.
bool send_signal(pid_t pid, int signal);
// R, S, T (stopped), Z, ... of /proc; 0 when there is no such process.
[[nodiscard]] char state_of(pid_t pid);
// Gone, or a zombie that nobody has reaped yet.
[[nodiscard]] bool is_gone(pid_t pid);
// SIGSTOP, and true when the process was seen in state T.
[[nodiscard]] bool stop_and_see(pid_t pid);

struct tool_result {
  int code{-1};   // the exit code, or -1
  int signal{0};  // that it died of, or 0
  std::string out;
  std::string err;
};

struct tool_setup {
  std::string program;                   // default: the tool itself
  std::vector<std::string> environment;  // NAME=value, added
  std::string stdout_path;               // default: a file of its own
};

class tool_process {
 public:
  explicit tool_process(std::vector<std::string> arguments,
                        tool_setup setup = {});
  ~tool_process();
  tool_process(const tool_process&) = delete;
  tool_process& operator=(const tool_process&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void send(int signal) const;
  // Waits for the end; after the limit it is killed and code is -1.
  tool_result wait(std::chrono::seconds at_most = std::chrono::seconds{40});
  [[nodiscard]] bool has_ended();
  [[nodiscard]] std::string out() const;
  [[nodiscard]] std::string err() const;

 private:
  temp_folder folder_;
  std::string out_path_;
  pid_t pid_{-1};
  std::optional<int> status_;
};

tool_result run_tool(std::vector<std::string> arguments, tool_setup setup = {});

}  // namespace lastdoor::support

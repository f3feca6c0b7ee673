// process_tree.hpp: every descendant of a process, and signals that reach
// exactly the process that was looked at.
//
// A process group is not enough: a daemon leaves it. The tool is a child
// subreaper, so that an orphaned descendant becomes its child instead of
// init's, and walking down from the tool finds everything.
//
// Thread safety: free functions.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace lastdoor::cli {

struct process_info {
  pid_t pid;
  pid_t parent;
  pid_t group;
  char state;           // R, S, D, T (stopped), Z, ...
  std::uint64_t start;  // in ticks since boot; with pid it names one process

  friend bool operator==(const process_info& a, const process_info& b) {
    return a.pid == b.pid && a.start == b.start;
  }
};

// From /proc/PID/stat; nothing when there is no such process.
[[nodiscard]] std::optional<process_info> look_at(pid_t pid);
// The same of one thread, named as in /proc/PID/task.
[[nodiscard]] std::optional<process_info> look_at_thread(
    pid_t pid, std::string_view thread);

// All living descendants of `root`, zombies left out, and `strangers` with
// what descends from them left out. A moment's view: a process that forks
// meanwhile may hide one; repeat until nothing is left.
[[nodiscard]] std::vector<process_info> descendants_of(
    pid_t root, const std::vector<process_info>& strangers = {});

// Sends to that process and to no other that took its number since.
void send(const process_info& to, int signal) noexcept;

}  // namespace lastdoor::cli

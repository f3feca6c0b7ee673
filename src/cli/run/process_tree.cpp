#include "cli/run/process_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

#include "cli/run/signals.hpp"

namespace lastdoor::cli {

namespace {

// Takes the next blank-separated field off the front.
std::string_view next_field(std::string_view& rest) {
  const auto start = std::min(rest.find_first_not_of(' '), rest.size());
  const auto end = std::min(rest.find(' ', start), rest.size());
  const auto field = rest.substr(start, end - start);
  rest.remove_prefix(end);
  return field;
}

template <class Int>
Int number(std::string_view digits) {
  Int n{};
  std::from_chars(digits.data(), digits.data() + digits.size(), n);
  return n;
}

// "PID (any bytes, also blanks and brackets) S PPID PGRP ..."
std::optional<process_info> parse_stat(pid_t pid, std::string_view text) {
  const auto bracket = text.rfind(')');
  if (bracket == std::string_view::npos) {
    return std::nullopt;
  }
  std::string_view rest = text.substr(bracket + 1);
  process_info p{pid, 0, 0, '?', 0};
  const auto state = next_field(rest);
  if (!state.empty()) {
    p.state = state.front();
  }
  p.parent = number<pid_t>(next_field(rest));
  p.group = number<pid_t>(next_field(rest));
  constexpr int fields_up_to_start = 16;  // fields 6 to 21 of proc(5)
  for (int i = 0; i < fields_up_to_start; ++i) {
    next_field(rest);
  }
  p.start = number<std::uint64_t>(next_field(rest));
  return p;
}

std::optional<process_info> read_stat(pid_t pid, const std::string& path) {
  const descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!file.is_open()) {
    return std::nullopt;
  }
  std::array<char, 1024> text{};
  const auto n = ::read(file.get(), text.data(), text.size());
  if (n <= 0) {
    return std::nullopt;
  }
  return parse_stat(pid, {text.data(), static_cast<std::size_t>(n)});
}

struct close_dir {
  void operator()(DIR* d) const noexcept { ::closedir(d); }
};

std::vector<process_info> everybody() {
  std::vector<process_info> all;
  const std::unique_ptr<DIR, close_dir> proc{::opendir("/proc")};
  while (proc != nullptr) {
    const dirent* entry = ::readdir(proc.get());
    if (entry == nullptr) {
      break;
    }
    const auto pid = number<pid_t>(entry->d_name);
    if (pid <= 0) {
      continue;
    }
    if (auto p = look_at(pid)) {
      all.push_back(*p);
    }
  }
  return all;
}

}  // namespace

std::optional<process_info> look_at(pid_t pid) {
  return read_stat(pid, "/proc/" + std::to_string(pid) + "/stat");
}

std::optional<process_info> look_at_thread(pid_t pid, std::string_view thread) {
  return read_stat(pid, "/proc/" + std::to_string(pid) + "/task/" +
                            std::string{thread} + "/stat");
}

std::vector<process_info> descendants_of(
    pid_t root, const std::vector<process_info>& strangers) {
  auto all = everybody();
  std::erase_if(all, [&](const process_info& p) {
    return std::find(strangers.begin(), strangers.end(), p) != strangers.end();
  });
  std::unordered_set<pid_t> family{root};
  std::vector<process_info> found;
  // Parents may stand behind their children in /proc, so go round until
  // nobody new turns up.
  for (bool grew = true; grew;) {
    grew = false;
    for (const process_info& p : all) {
      if (family.count(p.parent) != 0 && family.insert(p.pid).second) {
        grew = true;
        if (p.state != 'Z' && p.state != 'X') {
          found.push_back(p);
        }
      }
    }
  }
  return found;
}

void send(const process_info& to, int signal) noexcept {
  const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, to.pid, 0));
  if (fd < 0) {
    // Before Linux 5.3 the number alone has to do.
    if (errno == ENOSYS) {
      ::kill(to.pid, signal);
    }
    return;
  }
  const descriptor exactly{fd};
  const auto now = look_at(to.pid);
  if (now && *now == to) {
    ::syscall(SYS_pidfd_send_signal, fd, signal, nullptr, 0);
  }
}

}  // namespace lastdoor::cli

#include "support/server_process.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace lastdoor::support {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void throw_errno(const std::string& doing) {
  throw std::system_error{errno, std::generic_category(), doing};
}

account find_account() {
  if (::getuid() != 0) {
    return {::getuid(), ::getgid(), ""};
  }
  for (const char* name : {"postgres", "nobody"}) {
    if (const passwd* entry = ::getpwnam(name)) {
      return {entry->pw_uid, entry->pw_gid, name};
    }
  }
  throw std::runtime_error{"no unprivileged user to run servers as"};
}

// Runs between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(char* const* argv, int log, const account& user,
                         bool drop, pid_t parent) {
  if (drop && (::setgroups(0, nullptr) != 0 || ::setgid(user.gid) != 0 ||
               ::setuid(user.uid) != 0)) {
    ::_exit(126);
  }
  // After the change of user, which would clear it.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    ::_exit(126);
  }
  ::dup2(log, 1);
  ::dup2(log, 2);
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, 0);
  ::close_range(3, ~0U, 0);
  ::execv(argv[0], argv);
  ::_exit(127);
}

// The parent and the state letter of a process; nothing when it is gone.
struct process_state {
  pid_t parent;
  char letter;
};
std::optional<process_state> state_of(pid_t pid) {
  const std::string text = text_of("/proc/" + std::to_string(pid) + "/stat");
  // "pid (name, which may hold anything) state parent ..."
  const auto end = text.rfind(')');
  if (end == std::string::npos) {
    return std::nullopt;
  }
  std::istringstream rest{text.substr(end + 1)};
  process_state state{};
  rest >> state.letter >> state.parent;
  return state;
}

bool gone(pid_t pid) {
  const auto state = state_of(pid);
  return !state || state->letter == 'Z' || state->letter == 'X';
}

}  // namespace

const account& server_account() {
  static const account found = find_account();
  return found;
}

temp_folder::temp_folder(const std::string& prefix) {
  // Not TMPDIR: a socket's path must stay below 108 bytes.
  std::string name = "/tmp/" + prefix + "-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    throw_errno("making a temporary folder");
  }
  path_ = name;
  give_to_server(path_);
}

temp_folder::~temp_folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void give_to_server(const fs::path& path) {
  if (::getuid() != 0) {
    return;
  }
  const auto& user = server_account();
  const auto give = [&](const fs::path& p) {
    if (::lchown(p.c_str(), user.uid, user.gid) != 0) {
      throw_errno("giving " + p.string() + " away");
    }
  };
  give(path);
  if (fs::is_directory(path)) {
    for (const auto& entry : fs::recursive_directory_iterator{path}) {
      give(entry.path());
    }
  }
}

server_process::server_process(const argument_list& arguments,
                               const fs::path& log) {
  std::vector<char*> argv;
  for (const auto& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const int fd =
      ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) {
    throw_errno("opening " + log.string());
  }
  const account& user = server_account();
  const bool drop = ::getuid() == 0;
  const pid_t self = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    become(argv.data(), fd, user, drop, self);
  }
  ::close(fd);
  if (pid_ < 0) {
    throw_errno("starting " + arguments[0]);
  }
}

server_process::~server_process() { kill_all(); }

std::optional<int> server_process::ended() {
  if (!status_) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = status;
    }
  }
  return status_;
}

void server_process::signal(int number) const noexcept {
  if (!status_) {
    ::kill(pid_, number);
  }
}

void server_process::stop(int number, std::chrono::seconds patience) {
  signal(number);
  if (!eventually([&] { return ended().has_value(); }, patience)) {
    kill_all();
  }
}

void server_process::kill_all() noexcept {
  if (ended()) {
    return;
  }
  // Stopped first, so that it starts no more children while we look.
  ::kill(pid_, SIGSTOP);
  const auto family = children();
  for (const pid_t child : family) {
    ::kill(child, SIGKILL);
  }
  ::kill(pid_, SIGKILL);
  int status = 0;
  if (::waitpid(pid_, &status, 0) == pid_) {
    status_ = status;
  }
  for (const pid_t child : family) {
    (void)eventually([&] { return gone(child); });
  }
}

std::vector<pid_t> server_process::children() const {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator{"/proc", ignored}) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    const auto pid = static_cast<pid_t>(std::stol(name));
    const auto state = state_of(pid);
    if (state && state->parent == pid_ && state->letter != 'Z') {
      found.push_back(pid);
    }
  }
  return found;
}

void run_program(const argument_list& arguments, const fs::path& log) {
  server_process process{arguments, log};
  (void)eventually([&] { return process.ended().has_value(); },
                   std::chrono::minutes{2});
  const auto status = process.ended();
  if (!status || !WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
    throw std::runtime_error{arguments[0] + " failed:\n" + text_of(log)};
  }
}

bool eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (condition()) {
      return true;
    }
    if (std::chrono::steady_clock::now() >= end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
}

int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (fd < 0 || ::bind(fd, raw, size) != 0 ||
      ::getsockname(fd, raw, &size) != 0) {
    throw_errno("looking for a free port");
  }
  ::close(fd);
  return ntohs(address.sin_port);
}

std::string text_of(const fs::path& file) {
  std::ifstream in{file};
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool servers_required() {
  const char* value = std::getenv("LASTDOOR_REQUIRE_SERVERS");
  return value != nullptr && std::strcmp(value, "1") == 0;
}

}  // namespace lastdoor::support

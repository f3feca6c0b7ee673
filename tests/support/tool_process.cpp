#include "support/tool_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "cli/run/process_tree.hpp"

extern char** environ;  // NOLINT: the name is POSIX's

namespace lastdoor::support {

namespace {

using std::chrono::steady_clock;

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& s : strings) {
    out.push_back(s.data());
  }
  out.push_back(nullptr);
  return out;
}

[[noreturn]] void become(const std::string& program, char* const* argv,
                         char* const* envp, const char* out, const char* err) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int in = ::open("/dev/null", O_RDONLY);
  const int to = ::open(out, O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int errors = ::open(err, O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::dup2(in, 0);
  ::dup2(to, 1);
  ::dup2(errors, 2);
  for (int fd = 3; fd < 64; ++fd) {
    ::close(fd);
  }
  ::execve(program.c_str(), argv, envp);
  ::_exit(99);
}

}  // namespace

temp_folder::temp_folder() {
  std::string name =
      (std::filesystem::temp_directory_path() / "lastdoor-test-XXXXXX")
          .string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error{"no temporary folder"};
  }
  path_ = name;
}

temp_folder::~temp_folder() {
  std::error_code ec;
  std::filesystem::remove_all(path_, ec);
}

bool eventually(const std::function<bool()>& holds,
                std::chrono::seconds at_most) {
  const auto end = steady_clock::now() + at_most;
  while (!holds()) {
    if (steady_clock::now() > end) {
      return holds();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  return true;
}

std::string read_file(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

void write_file(const std::string& path, std::string_view text) {
  std::ofstream{path, std::ios::binary} << text;
}

pid_t pid_in(const std::string& path) {
  // A line that is not finished may hold half a number.
  const std::string text = read_file(path);
  return text.ends_with('\n') ? static_cast<pid_t>(std::stol(text)) : 0;
}

char state_of(pid_t pid) {
  const auto p = cli::look_at(pid);
  return p ? p->state : '\0';
}

bool is_gone(pid_t pid) {
  const char state = state_of(pid);
  return state == '\0' || state == 'Z' || state == 'X';
}

bool send_signal(pid_t pid, int signal) {
  return pid > 0 && ::kill(pid, signal) == 0;
}

bool stop_and_see(pid_t pid) {
  return send_signal(pid, SIGSTOP) &&
         eventually([&] { return state_of(pid) == 'T'; });
}

tool_process::tool_process(std::vector<std::string> arguments,
                           tool_setup setup) {
  const std::string program =
      setup.program.empty() ? LASTDOOR_TOOL : setup.program;
  arguments.insert(arguments.begin(), program);
  std::vector<std::string> environment;
  for (char** at = environ; *at != nullptr; ++at) {
    environment.emplace_back(*at);
  }
  environment.insert(environment.end(), setup.environment.begin(),
                     setup.environment.end());
  const auto argv = pointers(arguments);
  const auto envp = pointers(environment);
  out_path_ = setup.stdout_path.empty() ? folder_ / "out" : setup.stdout_path;
  const std::string err_path = folder_ / "err";
  pid_ = ::fork();
  if (pid_ == 0) {
    become(program, argv.data(), envp.data(), out_path_.c_str(),
           err_path.c_str());
  }
  if (pid_ < 0) {
    throw std::system_error{errno, std::generic_category(), "fork"};
  }
}

tool_process::~tool_process() {
  if (!status_) {
    send_signal(pid_, SIGKILL);
    wait();
  }
}

void tool_process::send(int signal) const { send_signal(pid_, signal); }

bool tool_process::has_ended() {
  int status = 0;
  if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    status_ = status;
  }
  return status_.has_value();
}

tool_result tool_process::wait(std::chrono::seconds at_most) {
  const bool in_time = eventually([&] { return has_ended(); }, at_most);
  if (!in_time) {
    send_signal(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    status_ = status;
  }
  tool_result r;
  r.out = out();
  r.err = err();
  if (in_time && WIFEXITED(*status_)) {
    r.code = WEXITSTATUS(*status_);
  } else if (WIFSIGNALED(*status_)) {
    r.signal = WTERMSIG(*status_);
  }
  return r;
}

std::string tool_process::out() const {
  return std::filesystem::is_regular_file(out_path_) ? read_file(out_path_)
                                                     : std::string{};
}
std::string tool_process::err() const { return read_file(folder_ / "err"); }

tool_result run_tool(std::vector<std::string> arguments, tool_setup setup) {
  return tool_process{std::move(arguments), std::move(setup)}.wait();
}

}  // namespace lastdoor::support

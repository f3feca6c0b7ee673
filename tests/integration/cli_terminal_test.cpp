// lastdoor run at a terminal: who is in the foreground, Ctrl-C, Ctrl-Z.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "support/tool_process.hpp"

namespace lastdoor {
namespace {

using namespace support;

// The tool as the leader of a session on a terminal of its own.
class session_of_tool {
 public:
  explicit session_of_tool(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), LASTDOOR_TOOL);
    std::vector<char*> argv;
    for (std::string& a : arguments) {
      argv.push_back(a.data());
    }
    argv.push_back(nullptr);
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      ::execv(argv.front(), argv.data());
      ::_exit(99);
    }
    if (pid_ < 0) {
      throw std::system_error{errno, std::generic_category(), "forkpty"};
    }
    ::fcntl(terminal_, F_SETFL, O_NONBLOCK);
  }
  ~session_of_tool() {
    send_signal(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ::close(terminal_);
  }
  session_of_tool(const session_of_tool&) = delete;
  session_of_tool& operator=(const session_of_tool&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] pid_t foreground() const { return ::tcgetpgrp(terminal_); }
  /// Before the session has a terminal there is no foreground: 0 or -1.
  [[nodiscard]] bool gives_the_terminal_away() const {
    return eventually(
        [&] { return foreground() > 0 && foreground() != pid(); });
  }
  void type(std::string_view keys) const {
    ASSERT_EQ(::write(terminal_, keys.data(), keys.size()),
              static_cast<ssize_t>(keys.size()));
  }
  [[nodiscard]] bool shows(std::string_view text) {
    return eventually([&] {
      std::array<char, 1024> more{};
      const auto n = ::read(terminal_, more.data(), more.size());
      if (n > 0) {
        screen_.append(more.data(), static_cast<std::size_t>(n));
      }
      return screen_.find(text) != std::string::npos;
    });
  }
  [[nodiscard]] bool stops() {
    return eventually([&] { return state_of(pid_) == 'T'; });
  }
  int exit_code() {
    int status = 0;
    const bool ended = eventually([&] {
      static_cast<void>(shows_now());
      return ::waitpid(pid_, &status, WNOHANG) == pid_;
    });
    return ended && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  [[nodiscard]] const std::string& screen() const { return screen_; }

 private:
  bool shows_now() {
    std::array<char, 1024> more{};
    const auto n = ::read(terminal_, more.data(), more.size());
    if (n > 0) {
      screen_.append(more.data(), static_cast<std::size_t>(n));
    }
    return n > 0;
  }

  int terminal_{-1};
  pid_t pid_{-1};
  std::string screen_;
};

class CliTerminal : public testing::Test {
 protected:
  std::vector<std::string> call(const std::string& script) const {
    return {"run",        "--locks", "sqlite:" + (folder_ / "locks.db"),
            "--resource", "r",       "--ttl",
            "60s",        "--quiet", "--",
            "/bin/sh",    "-c",      script};
  }
  temp_folder folder_;
};

TEST_F(CliTerminal, ACommandThatReadsGetsTheTerminal) {
  session_of_tool s{call("read x; echo \"got:$x\"")};
  ASSERT_TRUE(s.gives_the_terminal_away());
  s.type("hello\n");
  EXPECT_TRUE(s.shows("got:hello")) << s.screen();
  EXPECT_EQ(s.exit_code(), 0);
}

TEST_F(CliTerminal, ACommandThatDoesNotReadLeavesItToOthers) {
  session_of_tool s{call("echo rea''dy; while :; do sleep 0.05; done")};
  ASSERT_TRUE(s.shows("ready"));
  EXPECT_EQ(s.foreground(), s.pid());
}

TEST_F(CliTerminal, C02_CtrlCReachesTheCommandInTheBackground) {
  session_of_tool s{
      call("trap 'exit 7' INT; echo rea''dy; "
           "while :; do sleep 0.05; done")};
  ASSERT_TRUE(s.shows("ready"));
  s.type("\x03");
  EXPECT_EQ(s.exit_code(), 7);
}

TEST_F(CliTerminal, C02_CtrlCReachesTheCommandInTheForeground) {
  session_of_tool s{call("trap 'exit 7' INT; cat; exit 8")};
  ASSERT_TRUE(s.gives_the_terminal_away());
  s.type("\x03");
  EXPECT_EQ(s.exit_code(), 7);
}

TEST_F(CliTerminal, CtrlZStopsBothAndContinuingGoesOn) {
  session_of_tool s{call("read x; echo \"got:$x\"")};
  ASSERT_TRUE(s.gives_the_terminal_away());
  const pid_t command = s.foreground();
  // It reads again: a stop that comes while it is being continued is void.
  ASSERT_TRUE(eventually([&] { return state_of(command) == 'S'; }));
  s.type("\x1a");
  ASSERT_TRUE(s.stops());
  EXPECT_EQ(state_of(command), 'T');
  EXPECT_EQ(s.foreground(), s.pid());
  send_signal(s.pid(), SIGCONT);
  ASSERT_TRUE(eventually([&] { return s.foreground() == command; }));
  s.type("hello\n");
  EXPECT_TRUE(s.shows("got:hello")) << s.screen();
  EXPECT_EQ(s.exit_code(), 0);
}

TEST_F(CliTerminal, CtrlZInTheBackgroundStopsBothAsWell) {
  session_of_tool s{
      call("echo $$ > " + (folder_ / "child") + "; exec sleep 100")};
  ASSERT_TRUE(eventually([&] { return pid_in(folder_ / "child") != 0; }));
  const pid_t command = pid_in(folder_ / "child");
  s.type("\x1a");
  ASSERT_TRUE(s.stops());
  EXPECT_TRUE(eventually([&] { return state_of(command) == 'T'; }));
  send_signal(s.pid(), SIGCONT);
  ASSERT_TRUE(eventually([&] { return state_of(command) == 'S'; }));
  send_signal(s.pid(), SIGUSR1);
  EXPECT_EQ(s.exit_code(), 128 + SIGUSR1);
}

}  // namespace
}  // namespace lastdoor

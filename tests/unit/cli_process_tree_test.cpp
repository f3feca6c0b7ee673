#include "cli/run/process_tree.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace lastdoor::cli {
namespace {

// A child that does nothing until it is killed.
class idle_child {
 public:
  idle_child() : pid_{::fork()} {
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) {
        ::pause();
      }
    }
  }
  ~idle_child() { end(); }
  idle_child(const idle_child&) = delete;
  idle_child& operator=(const idle_child&) = delete;
  [[nodiscard]] pid_t pid() const { return pid_; }
  int end() {
    int status = 0;
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, &status, 0);
      pid_ = -1;
    }
    return status;
  }

 private:
  pid_t pid_;
};

bool contains(const std::vector<process_info>& all, pid_t pid) {
  return std::any_of(all.begin(), all.end(),
                     [pid](const process_info& p) { return p.pid == pid; });
}

TEST(CliProcessTree, ANameCannotForgeTheFields) {
  ::prctl(PR_SET_NAME, ") Z 1 1 (");
  const auto self = look_at(::getpid());
  ASSERT_TRUE(self.has_value());
  EXPECT_EQ(self->parent, ::getppid());
  EXPECT_EQ(self->group, ::getpgrp());
  EXPECT_EQ(self->state, 'R');
  EXPECT_GT(self->start, 0U);
}

TEST(CliProcessTree, FindsChildrenButNotStrangers) {
  const idle_child a;
  const idle_child b;
  const auto all = descendants_of(::getpid());
  EXPECT_TRUE(contains(all, a.pid()));
  EXPECT_TRUE(contains(all, b.pid()));
  EXPECT_FALSE(contains(all, ::getpid()));
  const auto without_a = descendants_of(::getpid(), {*look_at(a.pid())});
  EXPECT_FALSE(contains(without_a, a.pid()));
  EXPECT_TRUE(contains(without_a, b.pid()));
}

TEST(CliProcessTree, LooksAtNothingThatIsGone) {
  idle_child a;
  const pid_t pid = a.pid();
  a.end();
  EXPECT_FALSE(look_at(pid).has_value());
  EXPECT_FALSE(contains(descendants_of(::getpid()), pid));
}

TEST(CliProcessTree, ASignalReachesNobodyWhoTookTheNumber) {
  idle_child a;
  process_info another = *look_at(a.pid());
  another.start += 1;  // as if the number had been given anew
  send(another, SIGTERM);
  send(*look_at(a.pid()), 0);  // the way is open
  ASSERT_TRUE(look_at(a.pid()).has_value());
  send(*look_at(a.pid()), SIGUSR1);
  siginfo_t ended{};
  ::waitid(P_PID, static_cast<id_t>(a.pid()), &ended, WEXITED | WNOWAIT);
  EXPECT_EQ(WTERMSIG(a.end()), SIGUSR1);  // and not SIGTERM
}

}  // namespace
}  // namespace lastdoor::cli

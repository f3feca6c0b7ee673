#include "cli/run/supervisor.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <stop_token>
#include <utility>

namespace lastdoor::cli {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How long KILL may take to work. A process in an uninterruptible wait, or
// one that may not be signalled, must not keep the tool for ever.
constexpr auto patience = seconds{5};

time_point now() noexcept { return boot_clock()->now(); }

int poll_timeout(duration d) noexcept {
  const auto ms = std::chrono::ceil<milliseconds>(d).count();
  return static_cast<int>(std::clamp<std::int64_t>(ms, 1, 60'000));
}

}  // namespace

supervisor::supervisor(const lease& held, const signal_inbox& signals,
                       const bell& lost, started_child child, time_plan plan,
                       std::vector<process_info> strangers)
    : lease_{held},
      signals_{signals},
      lost_{lost},
      child_{std::move(child)},
      plan_{plan},
      strangers_{std::move(strangers)},
      valid_until_{held.grant().valid_until()} {}

std::vector<process_info> supervisor::adopt_orphans() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  auto children = descendants_of(::getpid());
  std::erase_if(children,
                [](const process_info& p) { return p.parent != ::getpid(); });
  return children;
}

supervision supervisor::run() {
  const std::stop_callback on_lost{lease_.lost(), [this] { lost_.ring(); }};
  while (!finished()) {
    wait();
    read_signals();
    reap();
    if (!outcome_.lost && lease_.lost().stop_requested()) {
      on_loss();
    }
    advance();
  }
  terminal_.take_back(!WIFEXITED(outcome_.status));
  outcome_.out_of_reach = any_child_ ? tree().size() : 0;
  return outcome_;
}

void supervisor::wait() noexcept {
  duration limit = plan_.sample;
  if (phase_ == phase::ending) {
    limit = std::min(limit, kill_at_ - now());
  } else if (phase_ == phase::killing) {
    limit = milliseconds{10};
  }
  pollfd watched[] = {{signals_.fd(), POLLIN, 0},
                      {outcome_.lost ? -1 : lost_.fd(), POLLIN, 0},
                      {report_open_ ? child_.report_fd() : -1, POLLIN, 0}};
  ::poll(watched, 3, poll_timeout(limit));
  if (watched[2].revents != 0) {
    outcome_.start = child_.outcome();
    report_open_ = false;
  }
  // Forward only: after a loss the grant has no validity at all.
  valid_until_ = std::max(valid_until_, lease_.grant().valid_until());
}

void supervisor::read_signals() {
  while (const int s = signals_.next()) {
    switch (s) {
      case SIGCHLD:
        break;  // reap() looks anyway
      case SIGCONT:
        resume();
        break;
      case SIGTSTP:
        pass_on(s);
        stop_self();  // SIGCONT follows and resumes the command
        break;
      default:
        pass_on(s);
    }
  }
}

void supervisor::pass_on(int signal) noexcept {
  // Afterwards the number of the group may be somebody else's.
  if (!command_ended_) {
    ::kill(-child_.pid(), signal);
  }
}

void supervisor::reap() {
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED);
    if (pid <= 0) {
      any_child_ = pid == 0;
      return;
    }
    if (pid != child_.pid()) {
      continue;
    }
    if (WIFSTOPPED(status)) {
      stopped(WSTOPSIG(status));
      continue;
    }
    outcome_.status = status;
    command_ended_ = true;
    if (report_open_) {
      outcome_.start = child_.outcome();  // its other end is closed by now
      report_open_ = false;
    }
  }
}

void supervisor::stopped(int by_signal) noexcept {
  if (by_signal == SIGTTIN || by_signal == SIGTTOU) {
    wants_terminal_ = true;
    if (terminal_.lend(child_.pid())) {
      pass_on(SIGCONT);
    }
    return;
  }
  if (by_signal == SIGTSTP && terminal_.is_lent()) {
    // Ctrl-Z reached the command alone. Whoever waits for us must see a
    // stopped job, so the rest of our group stops as well.
    terminal_.take_back(true);
    ::kill(0, SIGTSTP);
    stop_self();
  }
}

void supervisor::resume() noexcept {
  // Stopped for longer than the lease lives: on_loss() comes next, and a
  // command that is still stopped will not run a single line more.
  if (!lease_.check()) {
    return;
  }
  if (wants_terminal_ && !terminal_.is_lent()) {
    terminal_.lend(child_.pid());
  }
  pass_on(SIGCONT);
}

void supervisor::on_loss() {
  outcome_.lost = true;
  const time_point latest = valid_until_ - plan_.safety;
  if (now() >= latest) {
    // This process was stopped. No TERM: it would come with a CONT, and what
    // is stopped with us shall not run again.
    kill_at_ = latest;
    phase_ = std::max(phase_, phase::ending);
    return;
  }
  if (phase_ == phase::running) {
    begin_ending();
  }
  kill_at_ = std::min(kill_at_, latest);
}

void supervisor::advance() {
  if (command_ended_ && phase_ == phase::running && !finished()) {
    outcome_.left_behind = tree().size();
    begin_ending();
  }
  if (phase_ == phase::ending && now() >= kill_at_) {
    phase_ = phase::killing;
    give_up_at_ = now() + patience;
  }
  if (phase_ == phase::killing) {
    kill_all();
  }
}

void supervisor::begin_ending() noexcept {
  phase_ = phase::ending;
  kill_at_ = now() + plan_.grace;
  // A stopped process acts on TERM only when it is continued.
  pass_on(SIGTERM);
  pass_on(SIGCONT);
  for (const process_info& p : tree()) {
    if (command_ended_ || p.group != child_.pid()) {
      send(p, SIGTERM);
      send(p, SIGCONT);
    }
  }
}

void supervisor::kill_all() noexcept {
  pass_on(SIGKILL);
  for (const process_info& p : tree()) {
    send(p, SIGKILL);
  }
}

bool supervisor::finished() const {
  if (phase_ == phase::killing && now() >= give_up_at_) {
    return true;
  }
  if (!command_ended_) {
    return false;
  }
  return !any_child_ || (!strangers_.empty() && tree().empty());
}

std::vector<process_info> supervisor::tree() const {
  return descendants_of(::getpid(), strangers_);
}

}  // namespace lastdoor::cli

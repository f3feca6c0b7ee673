// supervisor.hpp: stays with a command from its start to the end of its last
// descendant.
//
// Invariants
//   - It returns when no descendant is left, daemons included. Only then may
//     the lock be released.
//   - When the lease is lost, the whole tree gets TERM at once and KILL after
//     the grace, but KILL no later than `safety` before the last validity
//     that is known: also when this process itself was stopped meanwhile.
//   - When the command ends and leaves descendants behind, they get the same:
//     TERM, the grace, KILL.
//   - Signals are passed on to the command's process group.
//
// Not in its power: a process that it may not signal (set-user-ID), and what
// runs on while the tool itself is stopped. There the store's fence holds.
//
// Thread safety: one thread, which must be the one that started the child.
#pragma once

#include <lastdoor/lease.hpp>
#include <optional>
#include <vector>

#include "cli/run/process_tree.hpp"
#include "cli/run/spawn.hpp"
#include "cli/run/terminal.hpp"

namespace lastdoor::cli {

struct time_plan {
  duration grace;   // between TERM and KILL
  duration safety;  // between KILL and the end of validity
  duration sample;  // how often to look at the validity
};

struct supervision {
  int status{0};                // of the command, as waitpid gives it
  start_report start;           // why it did not start, if so
  bool lost{false};             // the lease, before everything had ended
  std::size_t left_behind{0};   // descendants that outlived the command
  std::size_t out_of_reach{0};  // descendants that could not be ended
};

class supervisor {
 public:
  // `lost` is rung when the lease is lost. `strangers`: what `adopt_orphans`
  // answered. Both are made before the child, so that nothing can fail after.
  supervisor(const lease& held, const signal_inbox& signals, const bell& lost,
             started_child child, time_plan plan,
             std::vector<process_info> strangers);
  // To be called before the child is started: from here on orphans among the
  // descendants become children of this process. Answers the children that
  // it has already, from before an exec; they are none of our business.
  [[nodiscard]] static std::vector<process_info> adopt_orphans();

  [[nodiscard]] supervision run();

 private:
  enum class phase : std::uint8_t { running, ending, killing };

  void wait() noexcept;
  void read_signals();
  void pass_on(int signal) noexcept;
  void reap();
  void stopped(int by_signal) noexcept;
  void resume() noexcept;
  void on_loss();
  void advance();
  void begin_ending() noexcept;
  void kill_all() noexcept;
  [[nodiscard]] bool finished() const;
  [[nodiscard]] std::vector<process_info> tree() const;

  const lease& lease_;
  const signal_inbox& signals_;
  const bell& lost_;
  started_child child_;
  const time_plan plan_;
  terminal terminal_;
  const std::vector<process_info> strangers_;
  supervision outcome_;
  phase phase_{phase::running};
  bool report_open_{true};
  bool command_ended_{false};
  bool any_child_{true};
  bool wants_terminal_{false};  // it was stopped for want of it
  time_point valid_until_;      // the last that is known
  time_point kill_at_{};
  time_point give_up_at_{};
};

}  // namespace lastdoor::cli

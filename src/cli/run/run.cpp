#include "cli/run/run.hpp"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <lastdoor/gateway.hpp>
#include <memory>
#include <utility>

#include "cli/backends.hpp"
#include "cli/durations.hpp"
#include "fencing/text.hpp"

namespace lastdoor::cli {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Keeps the service and the store alive as long as the lease.
struct held_lock {
  lock_service locks;
  std::unique_ptr<lastdoor::store> store;
  std::optional<lease> plain;
  std::optional<session<lastdoor::store>> fenced;

  [[nodiscard]] lease& held() { return plain ? *plain : fenced->held(); }
};

result<held_lock> acquire(const run_options& o, const time_plan& plan,
                          const signal_inbox& signals) {
  auto locks = open_locks(o.locks);
  if (!locks) {
    return locks.error();
  }
  held_lock out{*locks, nullptr, {}, {}};
  if (!o.store.empty()) {
    auto s = open_store(o.store);
    if (!s) {
      return s.error();
    }
    out.store = std::move(*s);
  }
  acquire_options a;
  a.ttl = o.ttl;
  a.wait_at_most = o.wait;
  a.loss_margin = plan.grace + plan.safety;
  a.holder = o.holder;
  std::optional<error> refused;
  const auto interrupted = signals.until_done([&](std::stop_token stop) {
    a.stop = std::move(stop);
    if (out.store == nullptr) {
      auto got = locks->acquire(o.resource, a);
      got ? void(out.plain.emplace(std::move(*got)))
          : void(refused = got.error());
      return;
    }
    gateway<lastdoor::store> door{*locks, *out.store};
    auto got = door.acquire(o.resource, a);
    got ? void(out.fenced.emplace(std::move(*got)))
        : void(refused = got.error());
  });
  if (interrupted) {
    // If it was granted in the same moment, leaving here releases it.
    return interrupted_by(*interrupted, o.resource);
  }
  if (refused) {
    return *refused;
  }
  return out;
}

json describe(const grant& g) {
  return json{{"resource", g.resource().str()},
              {"token", g.token().to_string()},
              {"owner", g.owner().str()},
              {"source", g.source().str()}};
}

error about(const grant& g, errc code, std::string text) {
  return fail(code, std::move(text))
      .about(g.resource().str())
      .presented(g.token().value());
}

int not_started(const run_options& o, const grant& g, const start_report& r,
                const output& out) {
  if (r.problem == start_problem::too_late) {
    return out.failed(about(g, errc::lease_lost,
                            "the lock was too old when the command was about "
                            "to start; it was not started"));
  }
  const bool absent = r.error_number == ENOENT || r.error_number == ENOTDIR;
  const std::string text =
      fmt::format("cannot execute '{}': {}", printable(o.command.front()),
                  std::strerror(r.error_number));
  out.failed(about(g, absent ? errc::missing : errc::misconfigured, text));
  return absent ? exit_not_found : exit_cannot_execute;
}

int code_of(int status) noexcept {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string lost_text(const lease& held) {
  const auto why = held.why_lost();
  return fmt::format("the lock was lost ({}); the command was ended",
                     why ? name_of(*why) : "unknown");
}

// The command has run and the tree is gone, or out of reach.
int finish(const supervision& s, lease& held, const run_options& o,
           const output& out) {
  const grant g = held.grant();
  if (s.out_of_reach > 0) {
    const auto left = fmt::format(
        "{} processes could not be ended; the lock "
        "is left to its TTL",
        s.out_of_reach);
    std::move(held).orphan();
    return out.failed(
        about(g, s.lost ? errc::lease_lost : errc::misconfigured, left));
  }
  if (s.left_behind > 0 && !o.quiet) {
    out.note(fmt::format("ended {} process{} that the command left behind",
                         s.left_behind, s.left_behind == 1 ? "" : "es"));
  }
  // Whether the release works or not: did the lock last to the end?
  const bool lasted = !s.lost && held.check().has_value();
  auto released = held.release();
  if (!lasted) {
    return out.failed(about(g, errc::lease_lost, lost_text(held)), describe(g));
  }
  if (!released && released.error().ends_lease()) {
    return out.failed(released.error(), describe(g));
  }
  if (!released) {
    // The work is done under the lock; that the next one waits for the TTL is
    // no reason to call it failed.
    out.note(released.error().message());
  }
  const int code = code_of(s.status);
  if (out.as_json()) {
    json object = describe(g);
    object["exit_code"] = code;
    object["left_behind"] = s.left_behind;
    static_cast<void>(output::write(dump(object) + '\n'));
  }
  return code;
}

}  // namespace

result<time_plan> plan_times(duration ttl, std::optional<duration> grace) {
  const duration safety =
      std::clamp<duration>(ttl / 20, milliseconds{50}, seconds{1});
  const duration wanted =
      grace ? *grace : std::min<duration>(ttl / 4, seconds{10});
  if (wanted > ttl / 2 - safety && !grace) {
    return fail(errc::invalid_argument,
                fmt::format("--ttl {} is too short to end a command in: half "
                            "of it must hold a safety margin of {} and the "
                            "grace, a quarter unless --grace says less",
                            format_duration(ttl), format_duration(safety)));
  }
  if (wanted > ttl / 2 - safety) {
    return fail(errc::invalid_argument,
                fmt::format("--grace {} does not fit in --ttl {}: with a "
                            "safety margin of {} it may take half of it",
                            format_duration(wanted), format_duration(ttl),
                            format_duration(safety)));
  }
  const duration sample =
      std::clamp<duration>(ttl / 4, milliseconds{10}, seconds{1});
  return time_plan{wanted, safety, sample};
}

int run_command(const run_options& o, const output& out) {
  const auto plan = plan_times(o.ttl, o.grace);
  if (!plan) {
    return out.failed(plan.error());
  }
  auto signals =
      signal_inbox::open({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2,
                          SIGWINCH, SIGCONT, SIGTSTP, SIGCHLD});
  if (!signals) {
    return out.failed(signals.error());
  }
  auto lock = acquire(o, *plan, *signals);
  if (!lock) {
    return out.failed(lock.error());
  }
  lease& held = lock->held();
  const grant g = held.grant();
  if (!o.quiet) {
    out.note(fmt::format("holding '{}', token {}",
                         printable(g.resource().str()), g.token().to_string()));
  }
  auto strangers = supervisor::adopt_orphans();
  auto lost = bell::make();
  if (!lost) {
    return out.failed(
        lost.error());  // here and below the lease releases itself
  }
  auto child =
      start({o.command, g, *signals,
             g.valid_until() - plan->grace - plan->safety, o.before_exec});
  if (!child) {
    return out.failed(child.error());
  }
  const supervision ended =
      supervisor{
          held, *signals, *lost, std::move(*child), *plan, std::move(strangers)}
          .run();
  if (ended.start.problem != start_problem::none) {
    return not_started(o, g, ended.start, out);
  }
  return finish(ended, held, o, out);
}

}  // namespace lastdoor::cli

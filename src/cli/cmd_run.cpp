// run: hold a lock while a command runs.
#include <memory>
#include <utility>

#include "cli/commands.hpp"
#include "cli/durations.hpp"
#include "cli/output.hpp"
#include "cli/run/run.hpp"

namespace lastdoor::cli {

namespace {

constexpr const char* explanation =
    "Hold a lock while a command runs: lastdoor run ... -- COMMAND [ARGS]\n\n"
    "The command finds LASTDOOR_RESOURCE, LASTDOOR_TOKEN, LASTDOOR_OWNER and\n"
    "LASTDOOR_SOURCE in its environment and presents them to the store. Its\n"
    "exit code is passed on. INT, TERM, HUP, QUIT, USR1 and USR2 are passed "
    "to\n"
    "its process group. When the lock is lost, the command and everything it\n"
    "started get TERM, and KILL before the lock's validity ends. What still\n"
    "runs when the command itself has ended gets the same; only then is the\n"
    "lock released.\n"
    "Limits: a process that is stopped cannot end its command, and "
    "set-user-ID\n"
    "programs may refuse the signal; there the fence at the store holds.";

struct run_arguments {
  run_options options;
  std::string ttl{"10s"}, wait{"0s"}, grace;
};

int act(run_arguments a, const invocation& call) {
  const output out{call.json};
  if (!call.has_separator || call.command.empty() ||
      call.command.front().empty()) {
    return out.failed(fail(errc::invalid_argument,
                           "run needs a command: lastdoor run ... -- COMMAND"));
  }
  a.options.command = call.command;
  auto ttl = parse_duration("--ttl", a.ttl);
  auto wait = parse_duration("--wait", a.wait);
  if (!ttl || !wait) {
    return out.failed(ttl ? wait.error() : ttl.error());
  }
  a.options.ttl = *ttl;
  a.options.wait = *wait;
  if (!a.grace.empty()) {
    auto grace = parse_duration("--grace", a.grace);
    if (!grace) {
      return out.failed(grace.error());
    }
    a.options.grace = *grace;
  }
  return run_command(a.options, out);
}

}  // namespace

void add_run(CLI::App& root, invocation& call) {
  auto a = std::make_shared<run_arguments>();
  CLI::App* c = root.add_subcommand("run", "Hold a lock while a command runs");
  c->footer(explanation);
  add_locks(*c, a->options.locks)->required();
  add_store(*c, a->options.store)
      ->description("Raise the store's barrier before the command starts");
  add_resource(*c, a->options.resource)->required();
  c->add_option("--ttl", a->ttl, "How long the lock lives unrenewed (10s)");
  c->add_option("--wait", a->wait, "How long to wait while it is held (0s)");
  c->add_option("--grace", a->grace,
                "From TERM to KILL (a quarter of the TTL, 10s at most)");
  c->add_option("--holder", a->options.holder,
                "Shown to those who find it held");
  c->add_flag("--quiet", a->options.quiet, "Only errors on stderr");
  add_json(*c, call);
  c->callback(
      [a, &call] { call.action = [a, &call] { return act(*a, call); }; });
}

}  // namespace lastdoor::cli

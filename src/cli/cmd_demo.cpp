// demo: shows what a lock alone loses and what the fence keeps.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.hpp"
#include "cli/demo/demo.hpp"
#include "cli/demo/worker.hpp"

namespace lastdoor::cli {

void add_demo(CLI::App& root, invocation& call) {
  auto o = std::make_shared<demo_options>();
  CLI::App* c = root.add_subcommand(
      "demo", "Stop lock holders past their TTL and count the damage");
  c->add_option("--seed", o->seed, "Repeat a run, as far as timing allows")
      ->check([](const std::string& text) {
        return text.starts_with('-') ? "a seed is 0 or more" : std::string{};
      });
  c->add_option("--workers", o->workers, "Processes that sell (4)")
      ->check(CLI::Range(2, 64));
  c->add_option("--skus", o->skus, "Things that are sold (3)")
      ->check(CLI::Range(1, 1000));
  c->add_option("--seconds", o->seconds, "Length of a round (4)")
      ->check(CLI::Range(1, 3600));
  add_locks(*c, o->locks)
      ->description("The lock service (a file in a temporary folder)");
  add_store(*c, o->store)
      ->description(
          "The store, with lastdoor's tables; the demo makes tables "
          "demo_lastdoor_* there and drops them (a file in a "
          "temporary folder)");
  add_json(*c, call);
  c->callback([o, &call] {
    call.action = [o, &call] { return run_demo(*o, output{call.json}); };
  });
  CLI::App* worker = root.add_subcommand(demo_worker_command, "")->group("");
  worker->callback([&call] { call.action = [] { return run_demo_worker(); }; });
}

}  // namespace lastdoor::cli

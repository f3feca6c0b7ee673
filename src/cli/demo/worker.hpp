// worker.hpp: one seller of the demo, a process of its own.
//
// It reads its orders from stdin, sells until it is told to end, and reports
// on stdout. Now and then, between reading the stock and writing it, it says
// `here` and waits: the place where a real program is unlucky. What happens
// to it there is up to the coordinator.
#pragma once

namespace lastdoor::cli {

// The hidden subcommand. Answers the exit code.
[[nodiscard]] int run_demo_worker();

constexpr const char* demo_worker_command = "demo-worker";

}  // namespace lastdoor::cli

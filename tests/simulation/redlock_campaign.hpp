// redlock_campaign.hpp: processes contend for leases on five real masters
// while everything that can go wrong does; G1 and G2 are checked over the
// whole history.
//
// The same seed picks the same faults for the same servers in the same order;
// when they come depends on the machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lastdoor::simulation {

struct campaign_options {
  std::uint64_t seed{1};
  /// Ends when so many grants were recorded, each fault came once, and these
  /// were seen ...
  std::uint64_t grants{1'000};
  std::vector<std::string> wanted{"operator"};
  /// ... and is given up after so long.
  std::chrono::seconds at_most{600};
  /// Of them every other goes through relays, and the third is `sequential`.
  int processes{4};
  int threads{2};  // of each process
  /// A line every five seconds.
  bool progress{false};
};

struct campaign_report {
  std::uint64_t grants{0};
  std::map<std::string, std::uint64_t> faults;  // how often each came
  /// What the workers met: codes of failed acquisitions, "second round",
  /// and what the driver saw of its own faults.
  std::map<std::string, std::uint64_t> seen;
  /// G1 or G2 broken, or a worker that died by itself, in words.
  std::optional<std::string> violation;
  /// All that was wanted came about.
  bool complete{false};
};

/// Throws std::exception when servers or processes cannot be had. Requires:
/// called on the main thread, whose children die with it.
[[nodiscard]] campaign_report run_campaign(const campaign_options& options);

/// The other end: a process of the campaign. What main() returns.
[[nodiscard]] int run_campaign_worker(int argc, char** argv);
inline constexpr const char* campaign_worker_command = "campaign-worker";

}  // namespace lastdoor::simulation

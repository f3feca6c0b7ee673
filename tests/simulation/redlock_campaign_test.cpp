// Redlock among faults: a bounded campaign as a test, and the whole one.
//
//   redlock_campaign                            the test
//   redlock_campaign campaign [--grants N] [--seconds S] [--seed S]
//                             [--processes P] [--threads T]
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "simulation/redlock_campaign.hpp"
#include "support/temp_redis.hpp"

namespace lastdoor {
namespace {

using namespace simulation;

std::string text_of(const campaign_report& r) {
  auto text = fmt::format("{} grants\n", r.grants);
  for (const auto& [name, count] : r.faults) {
    text += fmt::format("{:7} {}\n", count, name);
  }
  text += "seen:\n";
  for (const auto& [name, count] : r.seen) {
    text += fmt::format("{:7} {}\n", count, name);
  }
  return text + fmt::format("violation: {}\n", r.violation.value_or("none"));
}

TEST(RedlockCampaign, G1_G2_HoldWhateverBefallsTheServers) {
  LASTDOOR_NEEDS_REDIS();
  campaign_options o;
  o.seed = 20261201;
  fmt::print("seed {}\n", o.seed);
  // The faults come through to those who acquire.
  o.wanted = {"clock followed", "reply lost",   "no_quorum",
              "busy",           "second round", "operator"};
  const auto r = run_campaign(o);
  fmt::print("{}", text_of(r));
  EXPECT_FALSE(r.violation) << *r.violation;
  // Every fault came, and with all of them there were grants.
  EXPECT_TRUE(r.complete);
  EXPECT_GE(r.grants, o.grants);
}

int usage() {
  fmt::print(stderr,
             "redlock_campaign campaign [--grants N] [--seconds S] [--seed S]"
             " [--processes P] [--threads T]\n");
  return 2;
}

int whole_campaign(int argc, char** argv) {
  campaign_options o;
  o.grants = 100'000;
  o.at_most = std::chrono::hours{1};
  o.processes = 8;
  o.progress = true;
  for (int i = 2; i < argc; i += 2) {
    const std::string_view flag = argv[i];
    char* end = nullptr;
    const auto value = i + 1 < argc ? std::strtoull(argv[i + 1], &end, 10) : 0;
    if (end == nullptr || *end != '\0') {
      return usage();
    }
    if (flag == "--grants") {
      o.grants = value;
    } else if (flag == "--seconds") {
      o.at_most = std::chrono::seconds{value};
    } else if (flag == "--seed") {
      o.seed = value;
    } else if (flag == "--processes" && value >= 2) {
      o.processes = static_cast<int>(value);
    } else if (flag == "--threads" && value >= 1) {
      o.threads = static_cast<int>(value);
    } else {
      return usage();
    }
  }
  fmt::print("seed {}\n", o.seed);
  const auto r = run_campaign(o);
  fmt::print("{}", text_of(r));
  return r.complete && !r.violation ? 0 : 1;
}

}  // namespace
}  // namespace lastdoor

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == lastdoor::simulation::campaign_worker_command) {
    return lastdoor::simulation::run_campaign_worker(argc, argv);
  }
  if (command == "campaign") {
    return lastdoor::whole_campaign(argc, argv);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

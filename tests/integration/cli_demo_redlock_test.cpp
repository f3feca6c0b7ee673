// lastdoor demo with its locks on five masters, which die one after the other
// while it runs, and its stock in Postgres.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>

#include "support/pg_ledger.hpp"
#include "support/redlock_cluster.hpp"

namespace lastdoor::support {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

class CliDemoRedlock : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_REDIS();
    LASTDOOR_NEEDS_POSTGRES();
  }
  static std::string tcp_url(redlock_cluster& masters) {
    std::string url;
    for (std::size_t k = 0; k < masters.size(); ++k) {
      url += fmt::format("{}127.0.0.1:{}", k == 0 ? "redlock://" : ",",
                         masters[k].port());
    }
    return url;
  }
  // The demo's own clients readmit it, so this ends only while they work.
  static bool all_admitted(const std::string& url) {
    const auto now = redlock_status(redlock_servers(url).value(),
                                    redlock_cluster::patience());
    return now && std::all_of(now->begin(), now->end(), [](const auto& s) {
             return s.now == redlock_node_status::condition::admitted;
           });
  }
  static bool is_over(const std::future<psql_answer>& run) {
    return run.wait_for(0s) == std::future_status::ready;
  }
};

TEST_P(CliDemoRedlock, R15_UnitsAreConservedWhileMastersDieAndForget) {
  int deaths = 0;
  int returns = 0;
  // On a busy machine a demo may be over before anything has happened to it.
  for (int seconds = 3; deaths < 2 || returns < 1; seconds *= 2) {
    ASSERT_LE(seconds, 48) << "the masters died " << deaths << " times";
    // Set up by the names that the demo has for them, so that its clients may
    // admit who comes back blank. The demo's TTL is 300 ms.
    redlock_cluster masters{5, 0s};
    const auto locks = tcp_url(masters);
    redlock_init(locks, {.max_ttl = 500ms}, redlock_cluster::patience())
        .value();
    temp_database db;
    const auto run = [&](const std::string& words) {
      return run_shell(fmt::format("{} {} --store '{}' --json", LASTDOOR_TOOL,
                                   words, db.url()));
    };
    const auto migrated = run("migrate up");
    ASSERT_EQ(migrated.status, 0) << migrated.text;

    auto demo = std::async(std::launch::async, run,
                           fmt::format("demo --seconds {} --seed {} --locks {}",
                                       seconds, GetParam(), locks));
    deaths = returns = 0;
    for (std::size_t k = 0; !is_over(demo); k = (k + 1) % masters.size()) {
      masters[k].restart();  // kill -9; it has forgotten everything
      deaths += is_over(demo) ? 0 : 1;
      (void)eventually([&] { return is_over(demo) || all_admitted(locks); });
      returns += is_over(demo) ? 0 : 1;
    }
    const auto told = demo.get();
    ASSERT_EQ(told.status, 0) << told.text;

    const auto j = json::parse(told.text.substr(told.text.find('{')));
    EXPECT_EQ(j.at("verdict"), "shown");
    const auto& fenced = j.at("rounds").at(1);
    EXPECT_EQ(fenced.at("units_off"), 0) << fenced.dump();
    EXPECT_EQ(fenced.at("late_writes").at("accepted"), 0);
    EXPECT_GT(fenced.at("late_writes").at("refused_by_store"), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CliDemoRedlock,
                         ::testing::Values("1", "2", "3"));

}  // namespace
}  // namespace lastdoor::support

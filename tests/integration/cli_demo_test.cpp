// lastdoor demo, as a user sees it.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/output.hpp"
#include "cli/run/process_tree.hpp"
#include "drivers/sqlite.hpp"
#include "support/demo_report.hpp"
#include "support/tool_process.hpp"

namespace lastdoor {
namespace {

using namespace support;
using nlohmann::json;

class CliDemo : public testing::TestWithParam<const char*> {
 protected:
  // A temporary folder of the demo's is below this one, where we can look.
  tool_setup setup() const {
    tool_setup s;
    s.environment = {"TMPDIR=" + (folder_ / "")};
    return s;
  }
  bool left_something_behind() const {
    return !std::filesystem::is_empty(folder_ / "");
  }
  temp_folder folder_;
};

TEST_P(CliDemo, X01_TheLockAloneLosesUnitsAndTheFenceNone) {
  const auto r = run_tool(
      {"demo", "--seconds", "1", "--seed", GetParam(), "--json"}, setup());
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  const json j = json::parse(r.out);
  EXPECT_EQ(j.at("seed"), GetParam());
  expect_shown(j);
  // The kept example tells a takeover: newer token, and in this order.
  const json& e = j.at("rounds").at(1).at("example");
  EXPECT_GT(std::stoll(e.at("newer_token").get<std::string>()),
            std::stoll(e.at("token").get<std::string>()));
  EXPECT_LT(e.at("stopped_ns"), e.at("taken_ns"));
  EXPECT_LE(e.at("taken_ns"), e.at("resumed_ns"));
  EXPECT_FALSE(left_something_behind());
}

INSTANTIATE_TEST_SUITE_P(Seeds, CliDemo, testing::Values("1", "2", "3"));

TEST_F(CliDemo, TextTellsTheSeedTheTokensAndTheVerdict) {
  const auto r = run_tool({"demo", "--seconds", "1", "--seed", "4"}, setup());
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  for (const char* part :
       {"seed 4", "One pause", "is in state T", "ACCEPTED", "stale_token",
        "lock only", "refused by the store", "agree to the\nunit"}) {
    EXPECT_NE(r.out.find(part), std::string::npos) << part << "\n" << r.out;
  }
}

TEST_F(CliDemo, AnInterruptCleansUpEverything) {
  tool_process run{{"demo", "--seconds", "60"}, setup()};
  std::vector<cli::process_info> workers;
  ASSERT_TRUE(eventually([&] {
    workers = cli::descendants_of(run.pid());
    return workers.size() == 4 &&
           std::any_of(workers.begin(), workers.end(),
                       [](const auto& w) { return w.state == 'T'; });
  }));
  run.send(SIGINT);
  EXPECT_EQ(run.wait().code, cli::exit_code(errc::canceled));
  for (const auto& w : workers) {
    EXPECT_TRUE(is_gone(w.pid));
  }
  EXPECT_FALSE(left_something_behind());
}

TEST_F(CliDemo, AKilledDemoTakesItsWorkersAlong) {
  tool_process run{{"demo", "--seconds", "60"}, setup()};
  std::vector<cli::process_info> workers;
  ASSERT_TRUE(eventually([&] {
    workers = cli::descendants_of(run.pid());
    return workers.size() == 4 &&
           run.out().find("Round one") != std::string::npos;
  }));
  run.send(SIGKILL);
  run.wait();
  for (const auto& w : workers) {
    EXPECT_TRUE(eventually([&] { return is_gone(w.pid); }));
  }
}

TEST_F(CliDemo, GivenServicesAreUsedAndLeftTidy) {
  const std::string locks = "sqlite:" + (folder_ / "locks.db");
  const std::string store = "sqlite:" + (folder_ / "shop.db");
  const std::vector<std::string> call{"demo", "--seconds", "1",  "--locks",
                                      locks,  "--store",   store};
  // Another database, or one without lastdoor's tables, is not made to fit.
  EXPECT_NE(run_tool(call).code, 0);
  ASSERT_EQ(run_tool({"migrate", "up", "--store", store}).code, 0);
  EXPECT_EQ(run_tool(call).code, 0);
  auto db = sqlite_driver::connection::open(folder_ / "shop.db",
                                            sqlite_driver::open_mode::existing)
                .value();
  auto rest = db.prepare(
                    "SELECT count(*) FROM sqlite_schema WHERE name GLOB "
                    "'demo_lastdoor_*'",
                    "a test's SQL")
                  .value();
  ASSERT_TRUE(rest.step("a test's SQL").value());
  EXPECT_EQ(rest.integer(0), 0);
}

TEST_F(CliDemo, TablesOfTheSameNameAreNotTouched) {
  const std::string store = "sqlite:" + (folder_ / "shop.db");
  ASSERT_EQ(run_tool({"migrate", "up", "--store", store}).code, 0);
  auto db = sqlite_driver::connection::open(folder_ / "shop.db",
                                            sqlite_driver::open_mode::existing)
                .value();
  db.exec("CREATE TABLE demo_lastdoor_stock (mine)", "a test's SQL").value();
  EXPECT_EQ(run_tool({"demo", "--seconds", "1", "--store", store}).code,
            cli::exit_code(errc::precondition_failed));
  db.exec("INSERT INTO demo_lastdoor_stock VALUES (1)", "a test's SQL").value();
}

TEST_F(CliDemo, TheWorkersCommandIsForTheDemoOnly) {
  EXPECT_EQ(run_tool({"demo-worker"}).code,
            cli::exit_code(errc::invalid_argument));
}

}  // namespace
}  // namespace lastdoor

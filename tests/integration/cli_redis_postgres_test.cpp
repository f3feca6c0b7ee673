// The demo with its locks on one server and its stock on another.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/demo_report.hpp"
#include "support/pg_ledger.hpp"
#include "support/temp_redis.hpp"

namespace lastdoor::support {
namespace {

class CliRedisPostgresDemo : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_POSTGRES();
    LASTDOOR_NEEDS_REDIS();
    redis_ = std::make_unique<temp_redis>();
    db_.emplace();
  }
  static psql_answer tool(const std::string& words) {
    return run_shell(std::string{LASTDOOR_TOOL} + ' ' + words);
  }
  static void expect_demo(const std::string& seed, const std::string& locks,
                          const std::string& store) {
    const auto told = tool("demo --seconds 1 --seed " + seed + " --json" +
                           " --locks '" + locks + "' --store '" + store + "'");
    ASSERT_EQ(told.status, 0) << told.text;
    const auto j = nlohmann::json::parse(told.text);
    EXPECT_EQ(j.at("seed"), seed);
    expect_shown(j);
  }

  std::unique_ptr<temp_redis> redis_;
  std::optional<ledger_database> db_;
};

TEST_P(CliRedisPostgresDemo, X01_TheLockAloneLosesUnitsAndTheFenceNone) {
  expect_demo(GetParam(), redis_->tcp_url(), db_->tcp_url());
  EXPECT_EQ(db_->value("SELECT count(*) FROM pg_class WHERE relname LIKE "
                       "'demo\\_lastdoor%'"),
            "0");
}

INSTANTIATE_TEST_SUITE_P(Seeds, CliRedisPostgresDemo,
                         ::testing::Values("1", "2", "3"));

using CliPostgresRedisDemo = CliRedisPostgresDemo;

TEST_F(CliPostgresRedisDemo, X01_TheOtherWayRoundAsWell) {
  const auto up = tool("migrate up --store '" + redis_->url() + "'");
  ASSERT_EQ(up.status, 0) << up.text;
  expect_demo("4", db_->url(), redis_->url());
  EXPECT_EQ(redis_->say({"EVAL",
                         "return #redis.call('KEYS', "
                         "'*demo_lastdoor*')",
                         "0"}),
            "0");
}

}  // namespace
}  // namespace lastdoor::support

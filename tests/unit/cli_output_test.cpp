#include "cli/output.hpp"

#include <gtest/gtest.h>

#include <set>

#include "cli/run/run.hpp"
#include "cli/table.hpp"

namespace lastdoor::cli {
namespace {

using namespace std::chrono_literals;

constexpr int last_code = static_cast<int>(errc::internal);

TEST(CliOutput, C03_EveryCodeHasAnExitCodeOfItsOwnAndIsDocumented) {
  std::set<int> seen;
  for (int n = 1; n <= last_code; ++n) {
    const auto code = static_cast<errc>(n);
    ASSERT_NE(name_of(code), "unknown");
    EXPECT_TRUE(seen.insert(exit_code(code)).second);
    EXPECT_GT(exit_code(code), 128 + 64);  // above every signal
    EXPECT_LE(exit_code(code), 255);
    const auto line = std::to_string(exit_code(code)) + "  " +
                      std::string{name_of(code)} + ": ";
    EXPECT_NE(exit_codes_text().find(line), std::string::npos) << line;
  }
  EXPECT_EQ(name_of(static_cast<errc>(last_code + 1)), "unknown");
}

TEST(CliOutput, F12_TokensInErrorsAreDecimalStrings) {
  const auto j = to_json(fail(errc::stale_token, "fenced off")
                             .about("a/b")
                             .presented(9007199254740990)
                             .seen(9007199254740991)
                             .retry_after_ms(5));
  EXPECT_EQ(j.at("code"), "stale_token");
  EXPECT_EQ(j.at("resource"), "a/b");
  EXPECT_EQ(j.at("presented"), "9007199254740990");
  EXPECT_EQ(j.at("seen"), "9007199254740991");
  EXPECT_EQ(j.at("retry_after_ms"), 5);
}

TEST(CliOutput, BytesThatAreNotUtf8DoNotStopIt) {
  EXPECT_EQ(dump({{"a", "\xff"}}), "{\"a\":\"\xEF\xBF\xBD\"}");
}

TEST(CliOutput, TablesLineUpAndEscapeControlCharacters) {
  EXPECT_EQ(table({{"NAME", "N"}, {"\xC3\xA9", "10"}, {"a\x1b[1m", "7"}}, {1}),
            "NAME       N\n"
            "\xC3\xA9         10\n"
            "a\\x1b[1m   7\n");
}

TEST(CliRunPlan, GraceAndSafetyTakeHalfTheTtlAtMost) {
  for (const auto ttl : {200ms, 1000ms, 10000ms, 120000ms}) {
    const auto plan = plan_times(ttl, std::nullopt).value();
    EXPECT_GT(plan.grace, 0ms);
    EXPECT_LE(plan.grace + plan.safety, ttl / 2);
  }
  EXPECT_EQ(plan_times(10s, 4500ms).value().grace, 4500ms);
  EXPECT_EQ(plan_times(10s, 0s).value().grace, 0s);
  EXPECT_EQ(plan_times(10s, 4501ms).code(), errc::invalid_argument);
  EXPECT_EQ(plan_times(100ms, std::nullopt).code(), errc::invalid_argument);
  const auto tiny = plan_times(1ms, std::nullopt);
  EXPECT_EQ(tiny.error().text().find("--grace 0"), std::string::npos);
  EXPECT_TRUE(tiny.error().text().starts_with("--ttl 1ms is too short"));
  EXPECT_EQ(plan_times(duration::max(), duration::max()).code(),
            errc::invalid_argument);
}

}  // namespace
}  // namespace lastdoor::cli

#include "cli/durations.hpp"

#include <gtest/gtest.h>

namespace lastdoor::cli {
namespace {

using namespace std::chrono_literals;

TEST(CliDurations, TakeANumberAndAUnit) {
  EXPECT_EQ(parse_duration("--ttl", "250ms").value(), 250ms);
  EXPECT_EQ(parse_duration("--ttl", "5s").value(), 5s);
  EXPECT_EQ(parse_duration("--ttl", "2m").value(), 2min);
  EXPECT_EQ(parse_duration("--ttl", "1h").value(), 1h);
  EXPECT_EQ(parse_duration("--ttl", "0s").value(), 0s);
}

class CliDurationsRefused : public testing::TestWithParam<const char*> {};

TEST_P(CliDurationsRefused, NamingTheOptionAndTheText) {
  const auto r = parse_duration("--ttl", GetParam());
  ASSERT_FALSE(r.has_value());
  EXPECT_EQ(r.code(), errc::invalid_argument);
  EXPECT_NE(r.error().text().find("--ttl: '" + std::string{GetParam()} + "'"),
            std::string::npos)
      << r.error().text();
}

INSTANTIATE_TEST_SUITE_P(All, CliDurationsRefused,
                         testing::Values("", "5", "0", "s", "ms", "-5s", "-",
                                         "+5s", " 5s", "5s ", "5 s", "5S",
                                         "5sec", "5us", "1.5s", "0x5s", "5s5",
                                         "9223372036854775807h",
                                         "9223372036854775808ms",
                                         "99999999999999999999s"));

TEST(CliDurations, TheLongestThatFitsIsTaken) {
  // 2^63 - 1 ns, in whole ms.
  EXPECT_TRUE(parse_duration("--ttl", "9223372036854ms").has_value());
  EXPECT_FALSE(parse_duration("--ttl", "9223372036855ms").has_value());
  EXPECT_TRUE(parse_duration("--ttl", "2562047h").has_value());
  EXPECT_FALSE(parse_duration("--ttl", "2562048h").has_value());
}

TEST(CliDurations, AreWrittenInTheLargestExactUnit) {
  EXPECT_EQ(format_duration(0s), "0s");
  EXPECT_EQ(format_duration(1500ms), "1500ms");
  EXPECT_EQ(format_duration(90s), "90s");
  EXPECT_EQ(format_duration(2min), "2m");
  EXPECT_EQ(format_duration(48h), "48h");
}

}  // namespace
}  // namespace lastdoor::cli

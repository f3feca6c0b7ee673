#include <gtest/gtest.h>

#include <cstdint>
#include <lastdoor/fencing/value.hpp>
#include <limits>
#include <type_traits>

namespace lastdoor {
namespace {

// 64 bits without a sign do not fit; who has them must decide what to do.
static_assert(!std::is_constructible_v<value, std::uint64_t>);
static_assert(std::is_constructible_v<value, std::uint32_t>);

TEST(Value, KeepsIntegersExactly) {
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(*value{most}.integer(), most);
  EXPECT_EQ(*value{least}.integer(), least);
  EXPECT_EQ(*value{std::uint32_t{4'294'967'295}}.integer(), 4'294'967'295);
  EXPECT_EQ(*value{true}.integer(), 1);
}

TEST(Value, KnowsItsKind) {
  EXPECT_TRUE(value{}.is_null());
  EXPECT_TRUE(value{nullptr}.is_null());
  EXPECT_EQ(*value{"text"}.text(), "text");
  EXPECT_EQ(*value{0.5}.real(), 0.5);
  EXPECT_EQ(value{blob(3)}.bytes()->size(), 3U);
  EXPECT_EQ(value{"7"}.integer(), nullptr);
  EXPECT_EQ(value{7}.text(), nullptr);
  EXPECT_NE(value{7}, value{"7"});
  EXPECT_NE(value{7}, value{7.0});
}

TEST(Value, KeepsTextWithNul) {
  const std::string text{"a\0b", 3};
  EXPECT_EQ(value{text}.text()->size(), 3U);
}

TEST(Value, DescribesItselfInOneShortLine) {
  EXPECT_EQ(value{}.describe(), "NULL");
  EXPECT_EQ(value{-7}.describe(), "-7");
  EXPECT_EQ(value{0.5}.describe(), "0.5");
  EXPECT_EQ(value{"a\nb"}.describe(), "'a\\x0ab'");
  EXPECT_EQ(value{std::string(61, 'x')}.describe(),
            "'" + std::string(60, 'x') + "...'");
  EXPECT_EQ((value{blob{std::byte{0x0a}, std::byte{0xff}}}.describe()),
            "x'0aff'");
  EXPECT_EQ(value{blob(31)}.describe(), "x'" + std::string(60, '0') + "...'");
}

}  // namespace
}  // namespace lastdoor

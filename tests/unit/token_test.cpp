#include <gtest/gtest.h>

#include <lastdoor/testing/matchers.hpp>
#include <lastdoor/token.hpp>
#include <limits>
#include <set>
#include <string>
#include <type_traits>

namespace lastdoor {
namespace {

using testing::FailsWith;
using testing::IsOk;

// Nothing passes for a token that is not one.
static_assert(!std::is_convertible_v<std::int64_t, fencing_token>);
static_assert(!std::is_constructible_v<fencing_token, std::int64_t>);
static_assert(!std::is_convertible_v<fencing_token, std::int64_t>);
static_assert(!std::is_convertible_v<std::string, owner_id>);
static_assert(!std::is_convertible_v<owner_id, resource_name>);
static_assert(!std::is_default_constructible_v<fencing_token>);
static_assert(!std::is_convertible_v<fencing_token, mark>);

constexpr std::int64_t top = (std::int64_t{1} << 53) - 1;

TEST(Token, IsOneToTheLastExactInteger) {
  EXPECT_EQ(fencing_token::max, top);
  EXPECT_EQ(fencing_token::from(1).value().value(), 1);
  EXPECT_EQ(fencing_token::from(top).value().value(), top);
  for (const std::int64_t raw : {std::int64_t{0}, std::int64_t{-1}, top + 1,
                                 std::numeric_limits<std::int64_t>::max(),
                                 std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_THAT(fencing_token::from(raw), FailsWith(errc::invalid_argument));
  }
}

TEST(Token, IsParsedFromPlainDigitsOnly) {
  EXPECT_EQ(fencing_token::parse("1").value().value(), 1);
  EXPECT_EQ(fencing_token::parse("9007199254740991").value().value(), top);
  for (const std::string text :
       {"", "0", "-1", "+1", "01", "1 ", " 1", "1x", "1.0", "0x1", "1e3",
        "9007199254740992", "9223372036854775807", "9223372036854775808",
        "18446744073709551617", "99999999999999999999999999999999999999"}) {
    EXPECT_THAT(fencing_token::parse(text), FailsWith(errc::invalid_argument))
        << text;
  }
  EXPECT_THAT(fencing_token::parse(std::string(100'000, '1')),
              FailsWith(errc::invalid_argument));
}

TEST(Token, ReadsBackWhatItWrites) {
  for (const std::int64_t raw : {std::int64_t{1}, std::int64_t{10}, top}) {
    const auto t = fencing_token::from(raw).value();
    EXPECT_EQ(fencing_token::parse(t.to_string()).value(), t);
  }
}

TEST(Token, IsOrderedAsANumber) {
  const auto nine = fencing_token::from(9).value();
  const auto ten = fencing_token::from(10).value();
  EXPECT_LT(nine, ten);
  EXPECT_EQ(nine, fencing_token::from(9).value());
}

TEST(Mark, IsNoneOrAToken) {
  EXPECT_TRUE(mark{}.none());
  EXPECT_TRUE(mark::from_store(0).value().none());
  EXPECT_EQ(mark::from_store(top).value(),
            mark{fencing_token::from(top).value()});
  EXPECT_LT(mark{}, mark{fencing_token::from(1).value()});
}

TEST(Mark, FromAStoreThatHoldsNonsenseIsDamage) {
  for (const std::int64_t raw : {std::int64_t{-1}, top + 1}) {
    EXPECT_THAT(mark::from_store(raw), FailsWith(errc::damaged));
  }
}

TEST(ResourceName, HasOneTo512Bytes) {
  EXPECT_THAT(resource_name::parse("a"), IsOk());
  EXPECT_THAT(resource_name::parse(std::string(512, 'a')), IsOk());
  EXPECT_THAT(resource_name::parse(""), FailsWith(errc::invalid_argument));
  EXPECT_THAT(resource_name::parse(std::string(513, 'a')),
              FailsWith(errc::invalid_argument));
  // 171 characters of three bytes each.
  std::string wide;
  for (int i = 0; i < 171; ++i)
    wide += "\xe2\x82\xac";
  EXPECT_THAT(resource_name::parse(wide), FailsWith(errc::invalid_argument));
}

TEST(ResourceName, IsUtf8WithoutNul) {
  EXPECT_THAT(resource_name::parse("caf\xc3\xa9/\xf0\x9f\x94\x92"), IsOk());
  for (const std::string& name :
       {std::string{"a\0b", 3}, std::string{"\0", 1}, std::string{"\xff"},
        std::string{"\xc0\xaf"}, std::string{"\xed\xa0\x80"},
        std::string{"cut\xe2\x82"}}) {
    EXPECT_THAT(resource_name::parse(name), FailsWith(errc::invalid_argument));
  }
}

TEST(ResourceName, IsComparedByteForByte) {
  const auto name = [](const char* s) {
    return resource_name::parse(s).value();
  };
  EXPECT_NE(name("A"), name("a"));
  // One letter with an accent, and a letter followed by one.
  EXPECT_NE(name("\xc3\xa9"), name("e\xcc\x81"));
  EXPECT_NE(name("a"), name("a "));
}

TEST(OwnerId, IsFreshEveryTime) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i)
    seen.insert(owner_id::generate().value().str());
  EXPECT_EQ(seen.size(), 1000U);
  EXPECT_EQ(seen.begin()->size(), 40U);
}

TEST(OwnerId, ReadsBackWhatItWrites) {
  const auto o = owner_id::generate().value();
  EXPECT_EQ(owner_id::parse(o.str()).value(), o);
}

TEST(OwnerId, Has40To128LowerCaseHexDigits) {
  EXPECT_THAT(owner_id::parse(std::string(40, 'a')), IsOk());
  EXPECT_THAT(owner_id::parse(std::string(128, '0')), IsOk());
  for (const std::string& bad :
       {std::string{}, std::string(39, 'a'), std::string(129, 'a'),
        std::string(40, 'A'), std::string(40, 'g'),
        std::string(39, 'a') + " "}) {
    EXPECT_THAT(owner_id::parse(bad), FailsWith(errc::invalid_argument));
  }
}

TEST(SourceName, IsPrintableAsciiWithoutBlanks) {
  EXPECT_THAT(source_name::parse("sqlite/default"), IsOk());
  EXPECT_THAT(source_name::parse(std::string(128, '~')), IsOk());
  for (const std::string& bad :
       {std::string{}, std::string(129, 'a'), std::string{"a b"},
        std::string{"a\n"}, std::string{"caf\xc3\xa9"}, std::string{"\x7f"}}) {
    EXPECT_THAT(source_name::parse(bad), FailsWith(errc::invalid_argument));
  }
}

}  // namespace
}  // namespace lastdoor

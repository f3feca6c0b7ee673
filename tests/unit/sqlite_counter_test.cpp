#include "locks/sqlite_counter.hpp"

#include <gtest/gtest.h>

namespace lastdoor {
namespace {

constexpr auto max = fencing_token::max;
constexpr auto block = token_counter::block;

TEST(SqliteCounter, FirstTokenReservesABlock) {
  static_assert(token_counter{}.needs_block());
  static_assert(token_counter{}.drawn() == token_counter{1, block, true});
}

TEST(SqliteCounter, WithinABlockNothingIsReserved) {
  static_assert(!token_counter{1, block, true}.needs_block());
  static_assert(token_counter{1, block, true}.drawn() ==
                token_counter{2, block, true});
  static_assert(!token_counter{block - 1, block, true}.needs_block());
  static_assert(token_counter{block, block, true}.needs_block());
  static_assert(token_counter{block, block, true}.drawn() ==
                token_counter{block + 1, 2 * block, true});
}

TEST(SqliteCounter, G8_AnotherBootBeginsBehindTheReservation) {
  static_assert(token_counter{1, block, false}.needs_block());
  static_assert(token_counter{1, block, false}.drawn() ==
                token_counter{block + 1, 2 * block, true});
  static_assert(token_counter{1, block, false}.raised(mark{}) ==
                token_counter{block, block, true});
}

TEST(SqliteCounter, R35_TheEndIsNeverPassed) {
  static_assert(token_counter{max - 1, max - 1, true}.drawn() ==
                token_counter{max, max, true});
  static_assert(!token_counter{max - 1, max, true}.exhausted());
  static_assert(token_counter{max, max, true}.exhausted());
  static_assert(token_counter{5, max, false}.exhausted());
  static_assert(token_counter{INT64_MAX, INT64_MAX, true}.exhausted());
  static_assert(token_counter{max - 5, max - 5, true}.drawn().reserved_until ==
                max);
}

TEST(SqliteCounter, RaisingNeverLowers) {
  const auto at = [](std::int64_t t) {
    return mark{fencing_token::from(t).value()};
  };
  constexpr token_counter c{50, block, true};
  EXPECT_EQ(c.raised(mark{}), c);
  EXPECT_EQ(c.raised(at(10)), c);
  EXPECT_EQ(c.raised(at(70)), (token_counter{70, block, true}));
  EXPECT_EQ(c.raised(at(5000)), (token_counter{5000, 5000, true}));
  EXPECT_EQ(c.raised(at(max)), (token_counter{max, max, true}));
}

TEST(SqliteCounter, ImplausibleNumbersAreTold) {
  static_assert(token_counter{0, 0, true}.plausible());
  static_assert(token_counter{max, max, true}.plausible());
  static_assert(!token_counter{-1, 0, true}.plausible());
  static_assert(!token_counter{2, 1, true}.plausible());
  static_assert(!token_counter{2, max + 1, true}.plausible());
}

}  // namespace
}  // namespace lastdoor

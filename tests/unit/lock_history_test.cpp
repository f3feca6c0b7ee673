// The judge of the lock contract finds what is wrong, and only that.
#include <gtest/gtest.h>
#include <lastdoor/testing/lock_history.hpp>

namespace lastdoor::testing {
namespace {

grant_record grant(std::int64_t asked, std::int64_t answered,
                   std::int64_t token, std::int32_t resource = 0) {
  return {asked, answered, answered + 2, token, resource, 1};
}

TEST(LockHistory, NothingIsWrongWithOrder) {
  EXPECT_EQ(find_repeated({}), std::nullopt);
  EXPECT_EQ(find_disorder({}), std::nullopt);
  EXPECT_EQ(find_overlap({}), std::nullopt);
  const std::vector<grant_record> good{grant(0, 10, 1), grant(20, 30, 2),
                                       grant(25, 29, 4, 1), grant(31, 40, 9)};
  EXPECT_EQ(find_repeated(good), std::nullopt);
  EXPECT_EQ(find_disorder(good), std::nullopt);
  EXPECT_EQ(find_overlap(good), std::nullopt);
}

TEST(LockHistory, G1_RepeatedTokenIsFound) {
  EXPECT_NE(find_repeated({grant(0, 10, 7), grant(5, 20, 7, 1)}), std::nullopt);
}

TEST(LockHistory, G2_OlderTokenAfterANewerOneIsFound) {
  EXPECT_NE(find_disorder({grant(11, 20, 4), grant(0, 10, 5, 1)}),
            std::nullopt);
  EXPECT_NE(find_disorder({grant(0, 10, 5), grant(11, 20, 5)}), std::nullopt);
}

TEST(LockHistory, G2_OverlappingAcquisitionsHaveNoOrder) {
  EXPECT_EQ(find_disorder({grant(0, 10, 5), grant(9, 20, 4, 1)}), std::nullopt);
  EXPECT_EQ(find_disorder({grant(0, 10, 5), grant(10, 20, 4, 1)}),
            std::nullopt);
}

TEST(LockHistory, TwoHoldersAtOnceAreFound) {
  EXPECT_NE(find_overlap({grant(0, 10, 1), grant(5, 11, 2)}), std::nullopt);
  EXPECT_EQ(find_overlap({grant(0, 10, 1), grant(5, 11, 2, 1)}), std::nullopt);
  EXPECT_EQ(find_overlap({grant(0, 10, 1), grant(5, 12, 2)}), std::nullopt);
}

}  // namespace
}  // namespace lastdoor::testing

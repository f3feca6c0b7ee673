#include "lastdoor/version.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

std::string joined_parts() {
  return std::to_string(LASTDOOR_VERSION_MAJOR) + "." +
         std::to_string(LASTDOOR_VERSION_MINOR) + "." +
         std::to_string(LASTDOOR_VERSION_PATCH);
}

TEST(Version, LinkedLibraryMatchesTheHeader) {
  EXPECT_EQ(lastdoor::version(), LASTDOOR_VERSION);
}

TEST(Version, PartsSpellTheWhole) {
  EXPECT_EQ(LASTDOOR_VERSION, joined_parts());
}

}  // namespace

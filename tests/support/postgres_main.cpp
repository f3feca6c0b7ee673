// The main of test programs whose fixtures need Postgres before any test can
// skip itself.
#include <gmock/gmock.h>

#include <cstdio>

#include "support/temp_postgres.hpp"

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const auto why = lastdoor::support::postgres_missing();
  if (!why.empty() && !GTEST_FLAG_GET(list_tests)) {
    std::printf("[  SKIPPED ] %s\n", why.c_str());
    return lastdoor::support::servers_required() ? 1 : 0;
  }
  return RUN_ALL_TESTS();
}

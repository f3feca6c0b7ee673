// The examples for Postgres, so that none of them can rot.
#include <gmock/gmock.h>

#include "support/pg_ledger.hpp"

namespace lastdoor::support {
namespace {

using ::testing::HasSubstr;

TEST(PostgresExamples, TheWorkQueueHandsEachJobToOneWorker) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  const auto told =
      run_shell(LASTDOOR_EXAMPLE_WORK_QUEUE " '" + db.url() + "'");
  EXPECT_EQ(told.status, 0) << told.text;
  EXPECT_THAT(told.text, HasSubstr("60 jobs"));
  EXPECT_EQ(db.value("SELECT count(*) FROM jobs WHERE done_by LIKE 'worker _'"),
            "60");
  EXPECT_EQ(db.value("SELECT count(DISTINCT token) FROM jobs"), "60");
}

TEST(PostgresExamples, TheRepositoryIsFencedAsItIs) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  const auto told =
      run_shell(LASTDOOR_EXAMPLE_REPOSITORY " '" + db.url() + "'");
  EXPECT_EQ(told.status, 0) << told.text;
  EXPECT_EQ(db.query("SELECT sku, qty FROM inventory"), (rows{{"2002", "7"}}));
}

}  // namespace
}  // namespace lastdoor::support

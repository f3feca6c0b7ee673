#include "stores/sqlite_schema_text.hpp"

#include <gmock/gmock.h>

namespace lastdoor::sqlite {
namespace {

TEST(SqliteSchemaText, BlanksAndCommentsDoNotCount) {
  EXPECT_EQ(plain_sql("CREATE  TABLE\n\tt ( -- why\n a /* b */, c )\n"),
            "CREATE TABLE t ( a , c )");
  EXPECT_EQ(plain_sql("a--b"), "a");
  EXPECT_EQ(plain_sql("a/*b"), "a");
  EXPECT_EQ(plain_sql(""), "");
}

TEST(SqliteSchemaText, QuotedTextIsKept) {
  for (const std::string text :
       {"'a  --b'", "\"a  /* b\"", "`a  --`", "[a  --]", "'it''s  --'", "'a"}) {
    EXPECT_EQ(plain_sql(text), text);
  }
  EXPECT_NE(plain_sql("'a  b'"), plain_sql("'a b'"));
}

TEST(SqliteSchemaText, EachDifferenceIsOneLine) {
  const schema_text want{{"table a", "A"}, {"table b", "B"}};
  EXPECT_THAT(differences(want, want), ::testing::IsEmpty());
  const schema_text have{{"table b", "C"}, {"table c", "D"}};
  EXPECT_THAT(differences(want, have),
              ::testing::ElementsAre("table a is missing",
                                     "table b is 'C' but should be 'B'",
                                     "table c is not of this release"));
}

}  // namespace
}  // namespace lastdoor::sqlite

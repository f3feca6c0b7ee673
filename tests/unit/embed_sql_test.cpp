// The build's embedding of SQL, tried on files made to be misread.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "embedded_empty_migrations.hpp"
#include "embedded_sample_migrations.hpp"

namespace {

namespace sample = lastdoor::detail::sample_sql;
namespace empty = lastdoor::detail::empty_sql;

std::string text_of(const std::string& file) {
  std::ifstream stream(LASTDOOR_EMBED_SQL_SAMPLES "/" + file, std::ios::binary);
  EXPECT_TRUE(stream) << file;
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(EmbedSql, KeepsOrderVersionAndName) {
  const auto all = sample::embedded_migrations();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].version, 1);
  EXPECT_EQ(all[0].name, "awkward");
  EXPECT_EQ(all[1].version, 2);
  EXPECT_EQ(all[1].name, "second_one");
}

TEST(EmbedSql, TextEqualsTheFileByteForByte) {
  const auto all = sample::embedded_migrations();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].up, text_of("0001_awkward.up.sql"));
  EXPECT_EQ(all[0].down, text_of("0001_awkward.down.sql"));
  EXPECT_EQ(all[1].up, text_of("0002_second_one.up.sql"));
  EXPECT_EQ(all[1].down, "");
}

// The expected values were printed by sha256sum.
TEST(EmbedSql, ChecksumIsTheSha256OfTheUpFile) {
  const auto all = sample::embedded_migrations();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].checksum,
            "d4e97f86e6e458d36696dd373c240d61101e7905488f7ee62ae794d3051cf382");
  EXPECT_EQ(all[1].checksum,
            "a41109d24069b4822ddc5f367b25d484dc7e839bff338ce7a3e5da641caacda0");
}

TEST(EmbedSql, NoFilesGiveAnEmptySpan) {
  EXPECT_TRUE(empty::embedded_migrations().empty());
}

}  // namespace

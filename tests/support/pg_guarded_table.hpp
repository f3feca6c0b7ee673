// pg_guarded_table.hpp: a private database with one guarded table, for tests of
// what the guard lets pass.
#pragma once

#include <gmock/gmock.h>

#include <lastdoor/testing/matchers.hpp>
#include <optional>
#include <string>

#include "support/pg_ledger.hpp"

namespace lastdoor::support {

inline auto passes() {
  return ::testing::Field("status", &psql_answer::status, 0);
}
inline auto fails_with(const std::string& sqlstate) {
  return ::testing::AllOf(
      ::testing::Field("status", &psql_answer::status, ::testing::Not(0)),
      ::testing::Field("text", &psql_answer::text,
                       ::testing::HasSubstr(sqlstate + ":")));
}

// The row 1 is at fence 9, and the resource's mark is 9.
class guarded_table : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_POSTGRES();
    db_.emplace();
    db_->run("CREATE TABLE t (id integer PRIMARY KEY, v text)");
    db_->fence("t", guard_mode::strict);
    ASSERT_THAT(db_->shell_as(nine, "INSERT INTO t VALUES (1, 'a');"),
                passes());
  }
  [[nodiscard]] std::string rows() const {
    return db_->value(
        "SELECT coalesce(string_agg(id || v || '/' || fence_token, ' ' "
        "ORDER BY id), 'none') FROM t");
  }

  const testing::terms nine{.token = 9};
  const testing::terms eight{.token = 8, .owner = 'b'};
  std::optional<ledger_database> db_;
};

}  // namespace lastdoor::support

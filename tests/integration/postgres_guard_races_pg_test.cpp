// Guards where one statement is not one step: lost races, upserts, MERGE.
#include <gmock/gmock.h>

#include <lastdoor/testing/matchers.hpp>
#include <pqxx/result>
#include <pqxx/transaction_base>

#include "support/pg_guarded_table.hpp"

namespace lastdoor::support {
namespace {

using PostgresGuard = guarded_table;

std::string merge_of_seven(const std::string& v) {
  return "MERGE INTO t USING (VALUES (7, '" + v +
         "')) n (id, v) ON t.id = n.id "
         "WHEN MATCHED THEN UPDATE SET v = n.v "
         "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (n.id, n.v)";
}

void begin_as(sql_session& s, const testing::terms& w) {
  (void)s.query("BEGIN");
  (void)s.query("SELECT lastdoor.present(" + arguments_of(w) + ")");
}

TEST_F(PostgresGuard, P13_AStaleWriteIsExecutedOnceAndIsNoClass40) {
  db_->run("CREATE SEQUENCE executions");
  db_->run(
      "CREATE FUNCTION count_it() RETURNS trigger LANGUAGE plpgsql AS "
      "$$ BEGIN PERFORM nextval('executions'); RETURN NEW; END $$");
  db_->run(
      "CREATE TRIGGER a_count BEFORE UPDATE ON t FOR EACH ROW "
      "EXECUTE FUNCTION count_it()");
  const testing::terms other{.token = 3, .resource = "other"};
  EXPECT_THAT(db_->shell_as(other, "UPDATE t SET v = 'x';"),
              fails_with("LD001"));
  EXPECT_EQ(db_->value("SELECT last_value FROM executions"), "1");
  // The store tries lost races again, and never a stale write.
  auto store = db_->open({.connections = 1});
  int calls = 0;
  const auto stale = store.transaction(testing::granted(other), [&](auto& tx) {
    ++calls;
    tx.exec("UPDATE t SET v = 'x'");
  });
  EXPECT_THAT(stale, testing::FailsWith(errc::stale_token));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(db_->value("SELECT last_value FROM executions"), "2");
}

// BEFORE INSERT triggers run although the row turns out to be there already.
// What the guard does then leaves no trace.
TEST_F(PostgresGuard, P15_AnUpsertThatChangesNothingLeavesNoTrace) {
  db_->run("CREATE TABLE fired (what text)");
  db_->run(
      "CREATE FUNCTION note_it() RETURNS trigger LANGUAGE plpgsql AS "
      "$$ BEGIN INSERT INTO fired VALUES (TG_OP); RETURN NEW; END $$");
  db_->run(
      "CREATE TRIGGER a_note BEFORE INSERT OR UPDATE ON t FOR EACH ROW "
      "EXECUTE FUNCTION note_it()");
  const testing::terms five{.token = 5, .resource = "five"};
  auto store = db_->open();
  const auto stale = store.write(
      testing::granted(five),
      upsert("t").key("id", 1).set("v", "x").returning({"v", "fence_token"}));
  EXPECT_THAT(stale, testing::FailsWith(errc::stale_token));
  EXPECT_EQ(stale.error().seen(), 9);
  EXPECT_EQ(db_->value("SELECT count(*) FROM fired"), "0");
  EXPECT_EQ(db_->value("SELECT count(*) FROM lastdoor.marks"), "1");
  // The same by hand: no success that changed a row, no fence that moved.
  EXPECT_THAT(db_->shell_as(five,
                            "INSERT INTO t VALUES (1, 'x') ON CONFLICT (id) "
                            "DO UPDATE SET v = 'x';"),
              fails_with("LD001"));
  EXPECT_THAT(db_->shell_as(five,
                            "INSERT INTO t VALUES (1, 'x') ON CONFLICT (id) "
                            "DO NOTHING;"),
              passes());
  EXPECT_EQ(db_->value("SELECT string_agg(what, ' ') FROM fired"), "INSERT");
  EXPECT_EQ(db_->value("SELECT string_agg(token::text, ' ' ORDER BY token) "
                       "FROM lastdoor.marks"),
            "5 9");
  EXPECT_EQ(rows(), "1a/9");
}

// MERGE is no upsert: of two at once for a new key one may meet the other's
// row. Whichever comes first, the older token does not win.
TEST_F(PostgresGuard, P16_TwoMergesOfANewKeyEndAtTheHigherToken) {
  // Two resources, so that the claims do not keep them apart.
  sql_session newer{db_->url()};
  sql_session older{db_->url()};
  begin_as(newer, {.token = 8, .resource = "m8"});
  begin_as(older, {.token = 7, .resource = "m7"});
  (void)newer.query(merge_of_seven("n"));
  older.send(merge_of_seven("o"));
  EXPECT_TRUE(eventually([&] {
    return db_->value("SELECT count(*) FROM pg_locks WHERE NOT granted") == "1";
  }));
  (void)newer.query("COMMIT");
  EXPECT_THROW(older.finish(), std::runtime_error);  // 23505, not both
  (void)older.query("ROLLBACK");
  EXPECT_EQ(rows(), "1a/9 7n/8");
  // Again, now that it is there: a match, whose fence is higher.
  begin_as(older, {.token = 7, .resource = "m7"});
  EXPECT_THROW((void)older.query(merge_of_seven("o")), std::runtime_error);
  EXPECT_EQ(rows(), "1a/9 7n/8");
}

TEST_F(PostgresGuard, P16_AMergeThatLostTheRaceMayBeRepeated) {
  const testing::terms seven{.token = 7, .resource = "m7"};
  const testing::terms ten{.token = 10, .resource = "m10"};
  sql_session older{db_->url()};
  sql_session newer{db_->url()};
  begin_as(older, seven);
  begin_as(newer, ten);
  (void)older.query(merge_of_seven("o"));
  newer.send(merge_of_seven("n"));
  EXPECT_TRUE(eventually([&] {
    return db_->value("SELECT count(*) FROM pg_locks WHERE NOT granted") == "1";
  }));
  (void)older.query("COMMIT");
  EXPECT_THROW(newer.finish(), std::runtime_error);  // 23505
  EXPECT_THAT(db_->shell_as(ten, merge_of_seven("n") + ";"), passes());
  EXPECT_EQ(rows(), "1a/9 7n/10");
}

}  // namespace
}  // namespace lastdoor::support

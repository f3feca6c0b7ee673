// plan_fence and add_fence: which tables take a fence, and what is said of
// those that do not.
#include <gtest/gtest.h>

#include <lastdoor/testing/store_contract_client.hpp>

#include "stores/sqlite_table.hpp"
#include "support/sqlite_file.hpp"

namespace lastdoor::testing {
namespace {

class SqlitePlan : public ::testing::Test {
 protected:
  std::string plan(const fence_request& r) {
    return outcome_of(sqlite::plan_fence(file_.path, r));
  }
  std::string add(const fence_request& r) {
    return outcome_of(sqlite::add_fence(file_.path, r));
  }
  std::string with(std::int64_t token, const std::string& sql,
                   const std::string& name = "stock") {
    db_.must("BEGIN IMMEDIATE");
    auto said = db_.run("INSERT INTO lastdoor_presented VALUES ('" + name +
                        "', " + std::to_string(token) + ", '" +
                        std::string(40, 'a') + "', 'test/one')");
    if (said.empty())
      said = db_.run(sql);
    db_.must(said.empty() ? "DELETE FROM lastdoor_presented; COMMIT"
                          : "ROLLBACK");
    return said;
  }

  sqlite_file file_;
  plain_sqlite db_ = file_.plain();
};

constexpr auto strict = guard_mode::strict;

TEST_F(SqlitePlan, RefusesWhatIsNoTableOfTheUser) {
  db_.must(
      "CREATE TABLE t (id INTEGER PRIMARY KEY);"
      "CREATE VIEW seen AS SELECT * FROM t;"
      "CREATE VIRTUAL TABLE words USING fts5(x);"
      "CREATE TABLE new (id);"
      "CREATE TABLE expressions (a TEXT);"
      "CREATE UNIQUE INDEX by_lower ON expressions(lower(a))");
  EXPECT_EQ(plan({.table = "absent"}), "missing");
  EXPECT_EQ(plan({.table = "seen"}), "invalid_argument");
  EXPECT_EQ(plan({.table = "words"}), "invalid_argument");
  EXPECT_EQ(plan({.table = "words_data"}), "invalid_argument");
  EXPECT_EQ(plan({.table = "sqlite_schema"}), "invalid_argument");
  EXPECT_EQ(plan({.table = "LASTDOOR_marks"}), "invalid_argument");
  EXPECT_EQ(plan({.table = "t", .schema = "temp"}), "invalid_argument");
  EXPECT_EQ(plan({.table = "t", .schema = "other"}), "invalid_argument");
  EXPECT_EQ(plan({.table = ""}), "invalid_argument");
  EXPECT_EQ(plan({.table = "t", .column = ""}), "invalid_argument");
  EXPECT_EQ(plan({.table = "t", .column = "id"}), "invalid_argument");
  EXPECT_EQ(plan({.table = "new", .guard = strict}), "invalid_argument");
  EXPECT_EQ(plan({.table = "expressions", .guard = strict}), "schema_mismatch");
  EXPECT_EQ(plan({.table = "expressions"}), "ok");
  EXPECT_EQ(plan({.table = "T", .schema = "MAIN"}), "ok");
}

TEST_F(SqlitePlan, S02_RefusesAColumnThatIsNoFence) {
  const std::pair<const char*, const char*> columns[] = {
      {"f TEXT NOT NULL DEFAULT 0", "schema_mismatch"},
      {"f", "schema_mismatch"},
      {"f REAL NOT NULL DEFAULT 0", "schema_mismatch"},
      {"f INTEGER DEFAULT 0", "schema_mismatch"},
      {"f INTEGER NOT NULL DEFAULT 7", "schema_mismatch"},
      {"f INTEGER NOT NULL AS (1)", "schema_mismatch"},
      {"f INTEGER NOT NULL UNIQUE", "invalid_argument"},
      {"f INTEGER NOT NULL DEFAULT 0", "ok"},
      {"f bigint NOT NULL DEFAULT 0", "ok"},
      // An insert that does not name it would fail.
      {"f INTEGER NOT NULL", "schema_mismatch"},
  };
  for (const auto& [column, outcome] : columns) {
    db_.must(std::string{"DROP TABLE IF EXISTS t; CREATE TABLE t (id, "} +
             column + ")");
    EXPECT_EQ(plan({.table = "t", .column = "F"}), outcome) << column;
  }
  db_.must("INSERT INTO t VALUES (1, 'nine')");
  EXPECT_EQ(plan({.table = "t", .column = "f"}), "schema_mismatch");
}

TEST_F(SqlitePlan, NeedsTheLedger) {
  temp_folder folder;
  const auto path = folder / "bare.db";
  sqlite_driver::connection::open(path, sqlite_driver::open_mode::create)
      .value()
      .exec("CREATE TABLE t (id)", "")
      .value();
  EXPECT_EQ(outcome_of(sqlite::plan_fence(path, {.table = "t"})),
            "schema_mismatch");
  EXPECT_EQ(outcome_of(sqlite::add_fence(path, {.table = "t"})),
            "schema_mismatch");
}

TEST_F(SqlitePlan, WhatIsPlannedIsWhatIsApplied) {
  db_.must(
      "CREATE TABLE t (id INTEGER PRIMARY KEY, v); "
      "INSERT INTO t VALUES (1, 1)");
  const auto planned =
      sqlite::plan_fence(file_.path, {.table = "t", .guard = strict}).value();
  EXPECT_EQ(planned.statements.size(), 6U);
  EXPECT_FALSE(planned.notes.empty());
  EXPECT_EQ(db_.one("SELECT count(*) FROM pragma_table_info('t')"), "2");
  for (const auto& sql : planned.statements) {
    db_.must(sql);  // as another migration tool would
  }
  const auto again =
      sqlite::add_fence(file_.path, {.table = "t", .guard = strict}).value();
  EXPECT_TRUE(again.statements.empty());
  EXPECT_EQ(db_.one("SELECT fence_token FROM t"), "0");
  EXPECT_NE(db_.run("UPDATE t SET v = 2"), "");
  EXPECT_EQ(with(5, "UPDATE t SET v = 2"), "");
}

TEST_F(SqlitePlan, ModesChangeForthAndBackAndRepeat) {
  db_.must("CREATE TABLE t (id INTEGER PRIMARY KEY, v)");
  const auto guards = [&] {
    return db_.one(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger' "
        "AND name GLOB 'lastdoor_guard_t_*'");
  };
  for (const auto mode : {guard_mode::none, strict, guard_mode::audit, strict,
                          guard_mode::none, guard_mode::audit}) {
    EXPECT_EQ(add({.table = "t", .guard = mode}), "ok");
    EXPECT_EQ(add({.table = "t", .guard = mode}), "ok");
    EXPECT_EQ(guards(), mode == guard_mode::none ? "0" : "5");
    EXPECT_EQ(db_.run("INSERT INTO t(v) VALUES (1)").empty(), mode != strict);
    EXPECT_TRUE(sqlite::migrate_verify(file_.path).value().empty());
  }
}

TEST_F(SqlitePlan, F13_AGuardIsNotTakenOffBySilence) {
  db_.must("CREATE TABLE t (id INTEGER PRIMARY KEY, v)");
  EXPECT_EQ(add({.table = "t"}), "ok");
  EXPECT_EQ(add({.table = "t"}), "ok");
  for (const auto mode : {strict, guard_mode::audit}) {
    ASSERT_EQ(add({.table = "t", .guard = mode}), "ok");
    EXPECT_EQ(plan({.table = "t"}), "invalid_argument");
    EXPECT_EQ(add({.table = "t"}), "invalid_argument");
    EXPECT_EQ(db_.run("INSERT INTO t(v) VALUES (1)").empty(), mode != strict);
  }
}

TEST_F(SqlitePlan, VerifyNoticesAGuardThatTheTableHasOutgrown) {
  db_.must("CREATE TABLE t (id INTEGER PRIMARY KEY, v)");
  ASSERT_EQ(add({.table = "t", .guard = strict}), "ok");
  db_.must("CREATE UNIQUE INDEX t_v ON t(v)");
  const auto found = sqlite::migrate_verify(file_.path).value();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].find("table t "), std::string::npos);
  ASSERT_EQ(add({.table = "t", .guard = strict}), "ok");
  EXPECT_TRUE(sqlite::migrate_verify(file_.path).value().empty());
  db_.must("DROP TRIGGER lastdoor_guard_t_delete");
  EXPECT_EQ(sqlite::migrate_verify(file_.path).value().size(), 1U);
}

TEST_F(SqlitePlan, C08_OddNamesAreGuardedAsTheyAre) {
  const std::pair<const char*, const char*> names[] = {
      {"Order", "\"Order\""},
      {"a b", "\"a b\""},
      {"x\"y", "\"x\"\"y\""},
      {"it's", "\"it's\""},
      {"b", "b"},
      {"r", "r"},
      {"w", "w"},
      {"t; DROP TABLE lastdoor_marks; --",
       "\"t; DROP TABLE lastdoor_marks; --\""},
      {"a_insert", "a_insert"},
      {"a", "a"},
  };
  int n = 0;
  for (const auto& [name, quoted] : names) {
    const std::string q = quoted;
    const std::string r = "r" + std::to_string(++n);
    db_.must("CREATE TABLE " + q +
             " (\"k'\"\"\" TEXT, v, \"fence\" INTEGER, "
             "PRIMARY KEY (\"k'\"\"\"))");
    ASSERT_EQ(add({.table = name, .column = "the \"fence", .guard = strict}),
              "ok")
        << name;
    EXPECT_EQ(with(5, "INSERT INTO " + q + "(\"k'\"\"\") VALUES ('a')", r), "");
    EXPECT_NE(db_.run("DELETE FROM " + q), "");
    EXPECT_NE(with(4, "DELETE FROM " + q, r), "");
    EXPECT_EQ(with(6, "UPDATE " + q + " SET v = 1", r), "");
    EXPECT_EQ(db_.one("SELECT \"the \"\"fence\" FROM " + q), "6");
    auto s = file_.open({.fence_column = "the \"fence"});
    EXPECT_EQ(outcome_of(s.write(granted({.token = 7, .resource = r}),
                                 update(name).key("k'\"", "a").set("v", 2))),
              "ok");
  }
  EXPECT_EQ(sqlite::migrate_verify(file_.path).value(),
            std::vector<std::string>{});
  EXPECT_EQ(
      add({.table = "A", .column = "the \"fence", .guard = guard_mode::audit}),
      "ok");
}

// A partial index keeps apart only the rows that its condition holds of.
TEST_F(SqlitePlan, S03_PartialIndexesAreInTheWayOnlyWhereTheyHold) {
  db_.must(
      "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, live INTEGER);"
      "CREATE UNIQUE INDEX one_live ON t(name COLLATE NOCASE) -- where\n"
      "WHERE t.live = 1 /* only */ AND name <> 'where (' -- end");
  ASSERT_EQ(add({.table = "t", .guard = strict}), "ok");
  ASSERT_EQ(with(9,
                 "INSERT INTO t(id, name, live) VALUES (1, 'a', 0),"
                 " (2, 'b', 1)",
                 "high"),
            "");
  EXPECT_EQ(with(5, "INSERT INTO t(name, live) VALUES ('a', 1)"), "");
  EXPECT_NE(with(5, "REPLACE INTO t(name, live) VALUES ('B', 1)"), "");
  EXPECT_EQ(db_.one("SELECT group_concat(id || name) FROM t"), "1a,2b,3a");
}

TEST_F(SqlitePlan, S03_CollationsAndGeneratedColumnsOfKeysCount) {
  db_.must(
      "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT COLLATE NOCASE UNIQUE,"
      " low TEXT AS (lower(name)) STORED, e TEXT, f TEXT AS (e || '!'));"
      "CREATE UNIQUE INDEX t_low ON t(low); CREATE UNIQUE INDEX t_f ON t(f)");
  ASSERT_EQ(add({.table = "t", .guard = strict}), "ok");
  ASSERT_EQ(with(9, "INSERT INTO t(id, name, e) VALUES (1, 'a', 'x')", "high"),
            "");
  EXPECT_NE(with(5, "REPLACE INTO t(name) VALUES ('A')"), "");
  EXPECT_NE(with(5, "REPLACE INTO t(e) VALUES ('x')"), "");
  EXPECT_EQ(db_.one("SELECT id || name FROM t"), "1a");
}

// A NULL that OR REPLACE turns into the default does so after the guard has
// looked, so the guard looks for the default too.
TEST_F(SqlitePlan, S03_ADefaultInPlaceOfNullIsLookedFor) {
  struct scene {
    const char* columns;
    const char* index;
  };
  constexpr scene scenes[] = {
      {"k TEXT NOT NULL DEFAULT 'x' UNIQUE", ""},
      {"k TEXT NOT NULL ON CONFLICT REPLACE DEFAULT 'x' UNIQUE", ""},
      {"k TEXT NOT NULL DEFAULT ('x' || '') UNIQUE", ""},
      {"k TEXT NOT NULL DEFAULT \"x\" UNIQUE", ""},
      {"k TEXT NOT NULL DEFAULT 'x', g TEXT AS (k || '!') UNIQUE", ""},
      {"k TEXT NOT NULL DEFAULT 'x', g TEXT AS (k || '!')",
       "CREATE UNIQUE INDEX t_g ON t(v, g)"},
      {"k TEXT NOT NULL DEFAULT 'x'",
       "CREATE UNIQUE INDEX t_v ON t(v) WHERE k = 'x'"},
  };
  for (const auto& s : scenes) {
    db_.must("DROP TABLE IF EXISTS t");
    db_.must(std::string{"CREATE TABLE t (id INTEGER PRIMARY KEY, v, "} +
             s.columns + "); " + s.index);
    ASSERT_EQ(add({.table = "t", .guard = strict}), "ok");
    ASSERT_EQ(with(9, "INSERT INTO t(id, v) VALUES (1, 6)", "high"), "");
    ASSERT_EQ(with(4, "INSERT INTO t(id, v, k) VALUES (2, 5, 'y')", "low"), "");
    for (const char* sql :
         {"INSERT OR REPLACE INTO t(id, k, v) VALUES (77, NULL, 6)",
          "UPDATE OR REPLACE t SET k = NULL, v = 6 WHERE id = 2"}) {
      EXPECT_NE(with(5, sql, "low"), "") << s.columns << sql;
      EXPECT_EQ(db_.one("SELECT group_concat(id || k) FROM t"), "1x,2y") << sql;
    }
    // What is left out, and what is nobody's, passes.
    EXPECT_EQ(with(9, "INSERT OR REPLACE INTO t(id, v) VALUES (1, 6)", "high"),
              "");
  }
}

TEST_F(SqlitePlan, S03_AuditSeesTheDefaultInPlaceOfNull) {
  db_.must(
      "CREATE TABLE t (id INTEGER PRIMARY KEY, v, "
      "k TEXT NOT NULL DEFAULT 'x' UNIQUE)");
  ASSERT_EQ(add({.table = "t", .guard = strict}), "ok");
  ASSERT_EQ(with(9, "INSERT INTO t(id, v) VALUES (1, 6)", "high"), "");
  ASSERT_EQ(add({.table = "t", .guard = guard_mode::audit}), "ok");
  EXPECT_EQ(with(5, "REPLACE INTO t(id, k) VALUES (77, NULL)", "low"), "");
  EXPECT_EQ(db_.one("SELECT id || ' ' || fence_token FROM t"), "77 9");
  EXPECT_EQ(db_.one("SELECT substr(reason, 1, 11) FROM lastdoor_audit "
                    "ORDER BY id LIMIT 1"),
            "stale_token");
}

TEST_F(SqlitePlan, VerifyNamesATriggerThatMaySkipTheStamp) {
  db_.must("CREATE TABLE t (id INTEGER PRIMARY KEY, v)");
  ASSERT_EQ(add({.table = "t", .guard = strict}), "ok");
  db_.must(
      "CREATE TRIGGER harmless BEFORE INSERT ON t WHEN new.v = 0 "
      "BEGIN SELECT RAISE(IGNORE); END");
  EXPECT_TRUE(sqlite::migrate_verify(file_.path).value().empty());
  db_.must(
      "CREATE TRIGGER skips AFTER INSERT ON t "
      "BEGIN SELECT raise ( Ignore ); END");
  const auto found = sqlite::migrate_verify(file_.path).value();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NE(found[0].find("'skips'"), std::string::npos) << found[0];
}

TEST_F(SqlitePlan, AnotherColumnThanTheGuardsIsRefused) {
  db_.must("CREATE TABLE t (id INTEGER PRIMARY KEY, v)");
  for (const auto mode : {strict, guard_mode::audit}) {
    ASSERT_EQ(add({.table = "t", .guard = mode}), "ok");
    file_.plain().must(
        "ALTER TABLE t RENAME COLUMN fence_token TO \"my fence\"");
    for (const auto other : {guard_mode::none, mode}) {
      const auto r =
          sqlite::add_fence(file_.path, {.table = "t", .guard = other});
      ASSERT_EQ(outcome_of(r), "schema_mismatch");
      EXPECT_NE(r.error().text().find("'my fence'"), std::string::npos);
    }
    EXPECT_EQ(db_.one("SELECT count(*) FROM pragma_table_info('t')"), "3");
    EXPECT_EQ(add({.table = "t", .column = "my fence", .guard = mode}), "ok");
    file_.plain().must(
        "ALTER TABLE t RENAME COLUMN \"my fence\" TO fence_token");
  }
}

TEST_F(SqlitePlan, ATableWithoutAnAddressIsRefused) {
  db_.must("CREATE TABLE t (rowid TEXT, oid TEXT, _rowid_ TEXT, v)");
  EXPECT_EQ(add({.table = "t"}), "ok");
  const auto r = sqlite::add_fence(file_.path, {.table = "t", .guard = strict});
  ASSERT_EQ(outcome_of(r), "schema_mismatch");
  EXPECT_NE(r.error().text().find("primary key"), std::string::npos);
}

// SQLite's foreign key actions fire triggers, unlike MariaDB's (L12).
TEST_F(SqlitePlan, L12_ForeignKeyActionsMeetTheGuard) {
  db_.must(
      "CREATE TABLE p (id INTEGER PRIMARY KEY);"
      "CREATE TABLE c (id INTEGER PRIMARY KEY, pid REFERENCES p "
      "ON DELETE CASCADE ON UPDATE CASCADE);"
      "CREATE TABLE n (id INTEGER PRIMARY KEY, pid REFERENCES p "
      "ON DELETE SET NULL);"
      "INSERT INTO p VALUES (1), (2); INSERT INTO c VALUES (1, 1);"
      "INSERT INTO n VALUES (1, 2); PRAGMA foreign_keys=ON");
  ASSERT_EQ(add({.table = "c", .guard = strict}), "ok");
  ASSERT_EQ(add({.table = "n", .guard = strict}), "ok");
  EXPECT_NE(db_.run("DELETE FROM p WHERE id = 1"), "");
  EXPECT_NE(db_.run("UPDATE p SET id = 3 WHERE id = 1"), "");
  EXPECT_NE(db_.run("DELETE FROM p WHERE id = 2"), "");
  EXPECT_NE(db_.run("REPLACE INTO p VALUES (1)"), "");
  EXPECT_EQ(with(5, "DELETE FROM p"), "");
  EXPECT_EQ(db_.one("SELECT count(*) FROM c"), "0");
  EXPECT_EQ(db_.one("SELECT fence_token FROM n WHERE pid IS NULL"), "5");
}

TEST_F(SqlitePlan, TheStoreCannotBeToldToDropAGuardedTable) {
  db_.must("CREATE TABLE t (id INTEGER PRIMARY KEY)");
  ASSERT_EQ(add({.table = "t", .guard = strict}), "ok");
  auto s = file_.open();
  auto r = s.transaction(granted({}), [](sqlite3* db) {
    EXPECT_NE(sqlite3_exec(db, "DROP TABLE t", nullptr, nullptr, nullptr),
              SQLITE_OK);
  });
  EXPECT_EQ(outcome_of(r), "ok");
}

TEST(SqliteTable, FindsTheConditionOfAnIndex) {
  using sqlite::index_predicate;
  EXPECT_EQ(index_predicate("CREATE INDEX i ON t(a)"), "");
  EXPECT_EQ(index_predicate("CREATE INDEX i ON t(a) WHERE b"), " b");
  EXPECT_EQ(index_predicate("CREATE INDEX \"where\" ON [where](`where`, "
                            "(a where b)) /* where */ wHeRe 'where' = x"),
            " 'where' = x");
  EXPECT_EQ(index_predicate("CREATE INDEX i ON t(\"a\"\" where \") -- where"),
            "");
  EXPECT_EQ(index_predicate("CREATE INDEX i ON nowhere(wheres)"), "");
}

}  // namespace
}  // namespace lastdoor::testing

// Built writes on an SQLite file: what the store contract cannot know of.
#include <gtest/gtest.h>

#include <fstream>
#include <lastdoor/testing/store_contract_client.hpp>

#include "stores/sqlite_store_impl.hpp"
#include "support/sqlite_file.hpp"

namespace lastdoor::testing {
namespace {

class SqliteStore : public ::testing::Test {
 protected:
  void make(const std::string& sql, const std::string& name = "items",
            guard_mode guard = guard_mode::none) {
    file_.table(sql, {.table = name, .guard = guard});
  }
  void make_items() {
    make(
        "CREATE TABLE items (id TEXT PRIMARY KEY, qty INTEGER, note TEXT);"
        "INSERT INTO items VALUES ('a', 10, 'x'), ('b', 20, 'x')");
  }
  static std::string write(store& s, const terms& t, const statement& what,
                           const write_options& o = {}) {
    return outcome_of(s.write(granted(t), what, o));
  }
  std::string one(const std::string& sql) { return file_.plain().one(sql); }

  sqlite_file file_;
};

sqlite_store_options column_only() {
  sqlite_store_options o;
  o.ledger = false;
  return o;
}

sqlite_store_options once() {
  sqlite_store_options o;
  o.rule = write_rule::once_per_grant;
  return o;
}

// For tests with many commits: they are not about power cuts.
sqlite_store_options unsynced() {
  sqlite_store_options o;
  o.on_open = [](sqlite3* db) -> result<void> {
    sqlite3_exec(db, "PRAGMA synchronous=OFF", nullptr, nullptr, nullptr);
    return {};
  };
  return o;
}

TEST_F(SqliteStore, OpensOnlyAFileThatWasPrepared) {
  temp_folder folder;
  EXPECT_EQ(outcome_of(open_sqlite_store(folder / "absent.db")),
            "misconfigured");
  std::ofstream{folder / "text.db"} << std::string(4096, 'x');
  EXPECT_EQ(outcome_of(open_sqlite_store(folder / "text.db")), "misconfigured");
  std::ofstream{folder / "empty.db"};
  EXPECT_EQ(outcome_of(open_sqlite_store(folder / "empty.db")),
            "schema_mismatch");
  EXPECT_EQ(outcome_of(open_sqlite_store(folder / "empty.db", column_only())),
            "ok");
  EXPECT_EQ(outcome_of(open_sqlite_store("")), "invalid_argument");
  sqlite_store_options no_clock;
  no_clock.time = nullptr;
  EXPECT_EQ(outcome_of(open_sqlite_store(file_.path, no_clock)),
            "invalid_argument");
}

TEST_F(SqliteStore, OnOpenSeesTheConnectionOnceAndMayRefuse) {
  int calls = 0;
  sqlite_store_options o;
  o.on_open = [&](sqlite3* db) -> result<void> {
    ++calls;
    sqlite3_exec(db, "PRAGMA foreign_keys=ON", nullptr, nullptr, nullptr);
    return {};
  };
  make(
      "CREATE TABLE p (id INTEGER PRIMARY KEY);"
      "CREATE TABLE c (id INTEGER PRIMARY KEY, pid REFERENCES p)",
      "c");
  auto s = file_.open(o);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(write(s, {}, insert("c").key("id", 1).set("pid", 7)),
            "precondition_failed");
  o.on_open = [](sqlite3*) -> result<void> {
    return fail(errc::misconfigured, "no");
  };
  EXPECT_EQ(outcome_of(open_sqlite_store(file_.path, o)), "misconfigured");
}

TEST_F(SqliteStore, OncePerGrantRecognisesItsOwnRepeat) {
  make_items();
  auto s = file_.open(once());
  const auto take = update("items").key("id", "a").subtract("qty", 1);
  const auto g = granted({.token = 5});
  EXPECT_FALSE(s.write(g, take).value().already_applied);
  EXPECT_TRUE(s.write(g, take).value().already_applied);
  EXPECT_EQ(one("SELECT qty FROM items WHERE id = 'a'"), "9");
  const auto add = insert("items").key("id", "c").set("qty", 1);
  EXPECT_FALSE(s.write(g, add).value().already_applied);
  EXPECT_TRUE(s.write(g, add).value().already_applied);
  // Nor does a requirement that the first one has made false matter.
  const auto exact =
      update("items").key("id", "b").set("qty", 0).require("qty", equals(20));
  EXPECT_FALSE(s.write(g, exact).value().already_applied);
  EXPECT_TRUE(s.write(g, exact).value().already_applied);
}

TEST_F(SqliteStore, OncePerGrantOfSeveralRowsIsAllOrNothingToo) {
  make_items();
  auto s = file_.open(once());
  const auto both = update("items").keys("id", {"a", "b"}).subtract("qty", 1);
  ASSERT_EQ(
      write(s, {.token = 5}, update("items").key("id", "a").subtract("qty", 1)),
      "ok");
  EXPECT_EQ(write(s, {.token = 5}, both), "precondition_failed");
  EXPECT_EQ(one("SELECT qty FROM items WHERE id = 'b'"), "20");
  const auto g = granted({.token = 6, .owner = 'b'});
  EXPECT_EQ(s.write(g, both).value().rows, 2);
  EXPECT_TRUE(s.write(g, both).value().already_applied);
  EXPECT_EQ(one("SELECT sum(qty) FROM items"), "27");
}

TEST_F(SqliteStore, ColumnOnlyFencesRowsAndRefusesTheRest) {
  make_items();
  auto s = file_.open(column_only());
  const auto take = update("items").key("id", "a").subtract("qty", 1);
  EXPECT_EQ(write(s, {.token = 5}, take), "ok");
  EXPECT_TRUE(s.write(granted({.token = 5}), take).value().already_applied);
  auto late = s.write(granted({.token = 4}), take);
  ASSERT_EQ(outcome_of(late), "stale_token");
  EXPECT_EQ(late.error().seen(), 5);
  EXPECT_EQ(write(s, {.token = 6}, put_qty("z", 1)), "missing");
  EXPECT_EQ(
      write(s, {.token = 4}, insert("items").key("id", "a").set("qty", 1)),
      "stale_token");
  EXPECT_EQ(one("SELECT qty FROM items WHERE id = 'a'"), "9");

  const char* refused = "invalid_argument";
  const auto g = granted({});
  EXPECT_EQ(write(s, {.token = 7}, erase("items").key("id", "a")), refused);
  EXPECT_EQ(write(s, {.token = 7}, insert("items").set("qty", 1)), refused);
  EXPECT_EQ(write(s, {.token = 7}, take, {.sequence = 1}), refused);
  EXPECT_EQ(outcome_of(s.claim(g)), refused);
  EXPECT_EQ(outcome_of(s.transaction(g, [](sqlite3*) {})), refused);
  EXPECT_EQ(outcome_of(s.read_mark(g.resource())), refused);
  EXPECT_EQ(outcome_of(s.list_marks("", 1)), refused);
  EXPECT_EQ(outcome_of(s.highest_mark()), refused);
  EXPECT_EQ(outcome_of(s.hand_over(g.source(), g.source())), refused);
  EXPECT_EQ(one("SELECT count(*) FROM lastdoor_marks"), "0");
}

TEST_F(SqliteStore, S02_FencesOfAnyStorageNeverLetAStaleTokenPass) {
  auto plain = file_.plain();
  plain.must(
      "CREATE TABLE untyped (id INTEGER PRIMARY KEY, v, fence_token);"
      "INSERT INTO untyped VALUES (1, 0, 10), (2, 0, '10'), (3, 0, NULL),"
      " (4, 0, x'10'), (5, 0, -3);"
      "CREATE TABLE text (id INTEGER PRIMARY KEY, v, fence_token TEXT);"
      "INSERT INTO text VALUES (1, 0, '10');"
      "CREATE TABLE floating (id INTEGER PRIMARY KEY, v, fence_token REAL);"
      "INSERT INTO floating VALUES (1, 0, 10)");
  for (const auto& options : {sqlite_store_options{}, column_only()}) {
    auto s = file_.open(options);
    const auto set = [&](const char* table, int id) {
      return write(s, {.token = 9}, update(table).key("id", id).set("v", 1));
    };
    EXPECT_EQ(set("untyped", 1), "stale_token");
    for (const int id : {2, 3, 4, 5}) {
      EXPECT_EQ(set("untyped", id), id == 5 ? "ok" : "schema_mismatch") << id;
    }
    EXPECT_EQ(set("text", 1), "schema_mismatch");
    EXPECT_EQ(set("floating", 1), "schema_mismatch");
    plain.must("UPDATE untyped SET v = 0, fence_token = -3 WHERE id = 5");
  }
  EXPECT_EQ(plain.one("SELECT (SELECT sum(v) FROM untyped) + (SELECT sum(v) "
                      "FROM text) + (SELECT sum(v) FROM floating)"),
            "0");
}

TEST_F(SqliteStore, F06_AKeyThatIsNotUniqueMeansAllItsRows) {
  make_items();
  auto s = file_.open();
  const terms nine{.token = 9, .resource = "nine"};
  ASSERT_EQ(write(s, nine, put_qty("b", 21)), "ok");
  const auto all = update("items").key("note", "x").add("qty", 1);
  EXPECT_EQ(write(s, {.token = 5}, all), "stale_token");
  EXPECT_EQ(one("SELECT sum(qty) FROM items"), "31");
  EXPECT_EQ(s.write(granted({.token = 10}), all).value().rows, 2);
  EXPECT_EQ(
      write(s, {.token = 10}, update("items").key("note", "y").set("qty", 1)),
      "missing");
}

TEST_F(SqliteStore, F06_AKeyThatStopsBeingUniqueIsNoticed) {
  make(
      "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, v INTEGER);"
      "CREATE UNIQUE INDEX t_name ON t(name);"
      "INSERT INTO t VALUES (1, 'a', 0)",
      "t");
  auto s = file_.open();
  const auto set = update("t").key("name", "a").add("v", 1);
  ASSERT_EQ(write(s, {.token = 5}, set), "ok");
  file_.plain().must("DROP INDEX t_name; INSERT INTO t VALUES (2, 'a', 0, 9)");
  EXPECT_EQ(write(s, {.token = 5}, set), "stale_token");
  EXPECT_EQ(one("SELECT group_concat(v) FROM t"), "1,0");
}

TEST_F(SqliteStore, F06_ACollationMayMakeAUniqueKeyMeanSeveralRows) {
  make(
      "CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT COLLATE NOCASE,"
      " v INTEGER);"
      "CREATE UNIQUE INDEX t_name ON t(name COLLATE BINARY);"
      "INSERT INTO t VALUES (1, 'a', 0), (2, 'A', 0)",
      "t");
  file_.plain().must("UPDATE t SET fence_token = 9 WHERE id = 2");
  auto s = file_.open();
  EXPECT_EQ(write(s, {.token = 5}, update("t").key("name", "a").add("v", 1)),
            "stale_token");
  EXPECT_EQ(one("SELECT sum(v) FROM t"), "0");
}

TEST_F(SqliteStore, S03_AConflictClauseOfTheTableReplacesNothing) {
  make(
      "CREATE TABLE t (id INTEGER PRIMARY KEY ON CONFLICT REPLACE,"
      " u INTEGER UNIQUE ON CONFLICT REPLACE, v INTEGER);"
      "INSERT INTO t VALUES (1, 1, 0), (2, 2, 0)",
      "t");
  file_.plain().must("UPDATE t SET fence_token = 9 WHERE id = 2");
  auto s = file_.open();
  EXPECT_EQ(write(s, {.token = 5}, insert("t").key("id", 1).set("v", 7)),
            "precondition_failed");
  EXPECT_EQ(write(s, {.token = 5}, insert("t").key("id", 3).set("u", 2)),
            "precondition_failed");
  EXPECT_EQ(write(s, {.token = 5}, update("t").key("id", 1).set("u", 2)),
            "precondition_failed");
  EXPECT_EQ(write(s, {.token = 5}, upsert("t").key("id", 1).set("u", 2)),
            "precondition_failed");
  EXPECT_EQ(one("SELECT group_concat(id || ':' || u || ':' || v) FROM t"),
            "1:1:0,2:2:0");
}

TEST_F(SqliteStore, ATriggerThatFailsHalfWayLeavesNothingBehind) {
  make_items();
  file_.plain().must(
      "CREATE TABLE log (line);"
      "CREATE TRIGGER noisy AFTER UPDATE ON items WHEN new.qty < 5 BEGIN"
      " INSERT INTO log VALUES (1); SELECT RAISE(FAIL, 'too few'); END");
  auto s = file_.open();
  const auto take = update("items").key("id", "a").subtract("qty", 7);
  auto r = s.write(granted({.token = 5}), take);
  EXPECT_EQ(outcome_of(r), "precondition_failed");
  EXPECT_EQ(one("SELECT qty FROM items WHERE id = 'a'"), "10");
  EXPECT_EQ(one("SELECT count(*) FROM log"), "0");
  EXPECT_EQ(one("SELECT count(*) FROM lastdoor_marks"), "0");
}

TEST_F(SqliteStore, ATriggerThatSkipsTheRowIsNoSuccess) {
  make_items();
  file_.plain().must(
      "CREATE TRIGGER silent BEFORE UPDATE ON items BEGIN"
      " SELECT RAISE(IGNORE); END");
  auto s = file_.open();
  EXPECT_EQ(write(s, {}, put_qty("a", 1)), "precondition_failed");
  EXPECT_EQ(write(s, {}, update("items").keys("id", {"a", "b"}).set("qty", 1)),
            "precondition_failed");
}

TEST_F(SqliteStore, OnlyTablesOfTheFileItselfAreWritten) {
  make_items();
  file_.plain().must(
      "CREATE VIEW seen AS SELECT * FROM items;"
      "CREATE VIRTUAL TABLE words USING fts5(t)");
  auto s = file_.open();
  const auto try_on = [&](statement what) {
    return write(s, {}, what.key("id", "a").set("qty", 1));
  };
  EXPECT_EQ(try_on(update("seen")), "invalid_argument");
  EXPECT_EQ(try_on(update("words")), "invalid_argument");
  EXPECT_EQ(try_on(update("words_data")), "invalid_argument");
  EXPECT_EQ(try_on(update("LastDoor_Marks")), "invalid_argument");
  EXPECT_EQ(try_on(update("sqlite_schema")), "invalid_argument");
  EXPECT_EQ(try_on(update("items").in_schema("temp")), "invalid_argument");
  EXPECT_EQ(try_on(update("items").in_schema("MAIN")), "ok");
  EXPECT_EQ(try_on(update("ITEMS")), "ok");
}

TEST_F(SqliteStore, ATemporaryTableOfTheSameNameIsNotMistaken) {
  make_items();
  auto s = file_.open();
  const auto g = granted({});
  ASSERT_EQ(outcome_of(s.transaction(g,
                                     [](sqlite3* db) {
                                       sqlite3_exec(
                                           db,
                                           "CREATE TEMP TABLE items AS SELECT "
                                           "* FROM main.items",
                                           nullptr, nullptr, nullptr);
                                     })),
            "ok");
  EXPECT_EQ(write(s, {}, put_qty("a", 77)), "ok");
  EXPECT_EQ(one("SELECT qty FROM items WHERE id = 'a'"), "77");
}

TEST_F(SqliteStore, C08_OddNamesHitTheRightTable) {
  const std::pair<const char*, std::string> tables[] = {
      {"\"Order\"", "Order"},
      {"\"a b\"", "a b"},
      {"\"x\"\"y\"", "x\"y"},
      {"\"it's; DROP TABLE t; --\"", "it's; DROP TABLE t; --"},
  };
  for (const auto& [quoted, name] : tables) {
    make(std::string{"CREATE TABLE "} + quoted +
             " (\"key \"\"1\" INTEGER PRIMARY KEY, \"select\" INTEGER)",
         name);
  }
  auto s = file_.open();
  for (const auto& [quoted, name] : tables) {
    EXPECT_EQ(write(s, {}, upsert(name).key("key \"1", 1).add("select", 7)),
              "ok");
    EXPECT_EQ(one(std::string{"SELECT \"select\" FROM "} + quoted), "7");
  }
}

TEST_F(SqliteStore, ABusyFileIsUnavailableAndNeverStale) {
  make_items();
  sqlite_store_options o;
  o.busy_timeout = duration::zero();
  auto s = file_.open(o);
  const auto g = granted({.token = 5});
  ASSERT_EQ(outcome_of(s.claim(g)), "ok");
  auto other = file_.plain();
  other.must("BEGIN IMMEDIATE; UPDATE items SET qty = 0");
  for (int i = 0; i < 2; ++i) {
    auto r = s.write(g, put_qty("a", 1));
    EXPECT_EQ(outcome_of(r), "unavailable");
    EXPECT_TRUE(r.error().retryable());
    EXPECT_EQ(outcome_of(s.transaction(g, [](sqlite3*) {})), "unavailable");
    EXPECT_EQ(outcome_of(s.claim(g)), "unavailable");
  }
  other.must("ROLLBACK");
  EXPECT_EQ(write(s, {.token = 5}, put_qty("a", 1)), "ok");
}

TEST_F(SqliteStore, S01_ProcessesThatReadThenWriteNeverFail) {
  make_items();
  struct nothing {};
  const auto run = [](sqlite3* db, const char* sql) {
    return sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK
               ? std::string{}
               : std::string{sqlite3_errmsg(db)};
  };
  constexpr int rounds = 100;
  std::vector<child_process<nothing>> all;
  for (int i = 0; i < 2; ++i) {
    all.emplace_back([&, i](const auto&) {
      auto s = file_.open(unsynced());
      const auto g = granted({.token = 7, .resource = "r" + std::to_string(i)});
      for (int n = 0; n < rounds; ++n) {
        auto r = s.transaction(g, [&](sqlite3* db) -> result<void> {
          if (auto said = run(db, "SELECT sum(qty) FROM items"); !said.empty())
            return fail(errc::internal, said);
          if (auto said = run(db, "UPDATE items SET qty = qty + 1");
              !said.empty())
            return fail(errc::internal, said);
          return {};
        });
        if (!r) {
          std::fprintf(stderr, "%s\n", r.error().message().c_str());
          return 1;
        }
      }
      return 0;
    });
  }
  for (auto& c : all) {
    EXPECT_EQ(c.wait(), 0);
  }
  EXPECT_EQ(one("SELECT qty FROM items WHERE id = 'a'"),
            std::to_string(10 + 2 * rounds));
}

TEST_F(SqliteStore, G3_NoHandLowersOrDeletesAMark) {
  const auto g = granted({.token = 5});
  {
    make_items();
    auto s = file_.open();
    ASSERT_EQ(outcome_of(s.write(g, put_qty("a", 1), {.sequence = 3})), "ok");
  }
  const std::string a(40, 'a');
  const std::string b(40, 'b');
  const std::string attempts[] = {
      "UPDATE lastdoor_marks SET token = 4",
      "UPDATE OR IGNORE lastdoor_marks SET token = 4",
      "UPDATE OR REPLACE lastdoor_marks SET resource = 'other'",
      "UPDATE lastdoor_marks SET owner = '" + b + "'",
      "UPDATE lastdoor_marks SET source = 'test/two'",
      "UPDATE lastdoor_marks SET token = NULL",
      "UPDATE lastdoor_marks SET last_sequence = 2",
      "UPDATE OR REPLACE lastdoor_marks SET last_sequence = NULL",
      "UPDATE lastdoor_marks SET token = 'nine'",
      "UPDATE lastdoor_marks SET token = 5.5",
      "DELETE FROM lastdoor_marks",
      "DELETE FROM lastdoor_marks WHERE resource = 'stock'",
      "REPLACE INTO lastdoor_marks VALUES ('stock', 4, '" + a +
          "', 'test/one', 0)",
      "REPLACE INTO lastdoor_marks VALUES ('stock', 5, '" + b +
          "', 'test/one', 0)",
      "REPLACE INTO lastdoor_marks VALUES ('stock', 6, '" + b +
          "', 'test/two', 0)",
      "INSERT INTO lastdoor_marks VALUES ('stock', 4, '" + a +
          "', 'test/one', 0) ON CONFLICT DO UPDATE SET token = 1",
      "INSERT INTO lastdoor_presented VALUES ('stock', 4, '" + a +
          "', 'test/one')",
      "INSERT OR REPLACE INTO lastdoor_presented VALUES ('stock', 5, '" + b +
          "', 'test/one')",
      "INSERT OR IGNORE INTO lastdoor_presented VALUES ('stock', 6, '" + b +
          "', 'test/two')",
      "INSERT INTO lastdoor_presented VALUES ('new', 0, '" + a +
          "', 'test/one')",
      "INSERT INTO lastdoor_presented VALUES ('new', -1, '" + a +
          "', 'test/one')",
      "INSERT INTO lastdoor_presented VALUES ('new', 9007199254740992, '" + a +
          "', 'test/one')",
      "INSERT INTO lastdoor_presented VALUES ('new', NULL, '" + a +
          "', 'test/one')",
  };
  for (const char* recursive : {"OFF", "ON"}) {
    auto db = file_.plain();
    db.must(std::string{"PRAGMA recursive_triggers="} + recursive);
    for (const auto& sql : attempts) {
      EXPECT_NE(db.run(sql), "") << sql;
      EXPECT_EQ(db.one("SELECT resource || token || owner || source || "
                       "last_sequence FROM lastdoor_marks"),
                "stock5" + a + "test/one3")
          << sql;
    }
  }
}

TEST_F(SqliteStore, ARetiredSourceStaysRetired) {
  auto s = file_.open();
  ASSERT_TRUE(s.hand_over(source_name::parse("test/one").value(),
                          source_name::parse("test/two").value()));
  auto db = file_.plain();
  for (const char* sql :
       {"DELETE FROM lastdoor_retired_sources",
        "UPDATE lastdoor_retired_sources SET source = 'x'",
        "REPLACE INTO lastdoor_retired_sources VALUES ('test/one', 'x')"}) {
    EXPECT_NE(db.run(sql), "") << sql;
  }
  EXPECT_EQ(outcome_of(s.claim(granted({}))), "wrong_source");
}

}  // namespace
}  // namespace lastdoor::testing

// Guard triggers, seen by programs that know nothing of lastdoor: a plain
// connection and the stock shell.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <lastdoor/testing/store_contract_client.hpp>

#include "support/sqlite_file.hpp"

namespace lastdoor::testing {
namespace {

std::string owner(char c) { return std::string(40, c); }

// SQL that presents a token, as a shell inside `lastdoor run` would.
std::string present(std::int64_t token, char c = 'a',
                    const std::string& name = "stock") {
  return "INSERT INTO lastdoor_presented(resource, token, owner, source) "
         "VALUES ('" +
         name + "', " + std::to_string(token) + ", '" + owner(c) +
         "', 'test/one')";
}

struct guarded_table {
  const char* name;
  const char* create;  // t(id, v) and what belongs to it
};

constexpr guarded_table tables[] = {
    {"rowid", "CREATE TABLE t (id INTEGER PRIMARY KEY, u TEXT UNIQUE, v)"},
    {"text", "CREATE TABLE t (id TEXT PRIMARY KEY, u TEXT UNIQUE, v)"},
    {"without_rowid",
     "CREATE TABLE t (id TEXT PRIMARY KEY, u TEXT UNIQUE, v) WITHOUT ROWID"},
    {"composite",
     "CREATE TABLE t (id TEXT, u TEXT UNIQUE, v, k INT DEFAULT 1,"
     " PRIMARY KEY (k, id)) WITHOUT ROWID"},
    {"shadowed_rowid",
     "CREATE TABLE t (id INTEGER PRIMARY KEY, u TEXT UNIQUE, v, rowid TEXT)"},
};

struct setting {
  guarded_table table;
  bool recursive;
};

class SqliteGuard : public ::testing::TestWithParam<setting> {
 protected:
  void SetUp() override { guard(guard_mode::strict); }

  void guard(guard_mode mode) {
    if (!made_) {
      db_.must(GetParam().table.create);
      made_ = true;
    }
    static_cast<void>(
        sqlite::add_fence(file_.path, {.table = "t", .guard = mode}).value());
    db_.must(std::string{"PRAGMA recursive_triggers="} +
             (GetParam().recursive ? "ON" : "OFF"));
  }
  // Runs `sql` in a transaction that presents the token.
  std::string with(std::int64_t token, const std::string& sql, char c = 'a',
                   const std::string& name = "stock") {
    db_.must("BEGIN IMMEDIATE");
    auto said = db_.run(present(token, c, name));
    if (said.empty())
      said = db_.run(sql);
    if (said.empty())
      said = db_.run("DELETE FROM lastdoor_presented");
    db_.must(said.empty() ? "COMMIT" : "ROLLBACK");
    return said;
  }
  std::string all() {
    return db_.one(
        "SELECT coalesce(group_concat(id || ':' || v || ':' || "
        "fence_token, ' '), '') FROM (SELECT * FROM t ORDER BY id)");
  }
  static bool says(const std::string& said, std::string_view code) {
    return said.starts_with("lastdoor: " + std::string{code} + ": ");
  }

  sqlite_file file_;
  plain_sqlite db_ = file_.plain();
  bool made_{false};
};

TEST_P(SqliteGuard, F13_WithoutATokenNothingPasses) {
  ASSERT_EQ(with(9, "INSERT INTO t(id, v) VALUES (1, 'x')"), "");
  for (const char* sql :
       {"UPDATE t SET v = 'y' WHERE id = 1", "DELETE FROM t",
        "UPDATE t SET fence_token = fence_token",
        "UPDATE t SET fence_token = 99", "INSERT INTO t(id, v) VALUES (2, 'y')",
        "INSERT OR IGNORE INTO t(id, v) VALUES (3, 'y')",
        "REPLACE INTO t(id, v) VALUES (1, 'y')", "UPDATE OR REPLACE t SET id=2",
        "INSERT INTO t(id, v) VALUES (1, 'y') ON CONFLICT DO UPDATE SET v = 1",
        "INSERT INTO t(id, v) SELECT 5, 'y'"}) {
    EXPECT_TRUE(says(db_.run(sql), "misconfigured")) << sql << db_.run(sql);
  }
  EXPECT_EQ(all(), "1:x:9");
}

TEST_P(SqliteGuard, StampsTheTokenOnWhatIsWritten) {
  ASSERT_EQ(with(5, "INSERT INTO t(id, v) VALUES (1, 'x'), (2, 'x')"), "");
  EXPECT_EQ(all(), "1:x:5 2:x:5");
  ASSERT_EQ(with(6, "UPDATE t SET v = 'y' WHERE id = 1"), "");
  EXPECT_EQ(all(), "1:y:6 2:x:5");
  ASSERT_EQ(with(6, "UPDATE t SET v = 'z'"), "");
  EXPECT_EQ(all(), "1:z:6 2:z:6");
  ASSERT_EQ(with(7,
                 "INSERT INTO t(id, v) VALUES (1, 'n') "
                 "ON CONFLICT DO UPDATE SET v = excluded.v"),
            "");
  ASSERT_EQ(with(8, "REPLACE INTO t(id, v) VALUES (2, 'r')"), "");
  EXPECT_EQ(all(), "1:n:7 2:r:8");
  ASSERT_EQ(with(8, "UPDATE t SET id = 3 WHERE id = 1"), "");
  EXPECT_EQ(all(), "2:r:8 3:n:8");
  ASSERT_EQ(with(8, "DELETE FROM t WHERE id = 3"), "");
  EXPECT_EQ(all(), "2:r:8");
}

TEST_P(SqliteGuard, AnOlderTokenIsStaleAtTheClaim) {
  ASSERT_EQ(with(9, "INSERT INTO t(id, v) VALUES (1, 'x')"), "");
  EXPECT_TRUE(says(with(8, "UPDATE t SET v = 'y'"), "stale_token"));
  EXPECT_TRUE(says(with(9, "UPDATE t SET v = 'y'", 'b'), "stale_token"));
  EXPECT_EQ(all(), "1:x:9");
}

// The ledger of the other resource lets the token pass; the row does not.
TEST_P(SqliteGuard, S03_ReplaceDoesNotGetAroundTheGuard) {
  ASSERT_EQ(with(9, "INSERT INTO t(id, u, v) VALUES (1, 'one', 'x')"), "");
  ASSERT_EQ(
      with(4, "INSERT INTO t(id, u, v) VALUES (2, 'two', 'x')", 'b', "low"),
      "");
  const std::string before = all();
  for (const char* sql :
       {"REPLACE INTO t(id, v) VALUES (1, 'y')",
        "INSERT OR REPLACE INTO t(id, u, v) VALUES (3, 'one', 'y')",
        "UPDATE OR REPLACE t SET id = 1 WHERE id = 2",
        "UPDATE OR REPLACE t SET u = 'one' WHERE id = 2",
        "UPDATE t SET v = 'y' WHERE id = 1", "DELETE FROM t WHERE id = 1",
        "UPDATE t SET v = 'y'", "DELETE FROM t",
        "INSERT INTO t(id, v) VALUES (1, 'y') ON CONFLICT DO UPDATE SET v = 1",
        "UPDATE OR IGNORE t SET v = 'y' WHERE id = 1"}) {
    EXPECT_TRUE(says(with(5, sql, 'b', "low"), "stale_token")) << sql;
    EXPECT_EQ(all(), before) << sql;
  }
}

TEST_P(SqliteGuard, F14_BothKeysOfAKeyChangeAreLookedAt) {
  ASSERT_EQ(with(4, "INSERT INTO t(id, v) VALUES (1, 'x')", 'b', "low"), "");
  ASSERT_EQ(with(9, "INSERT INTO t(id, v) VALUES (2, 'x')"), "");
  EXPECT_TRUE(says(with(5, "UPDATE t SET id = 2 WHERE id = 1", 'b', "low"),
                   "stale_token"));
  EXPECT_TRUE(says(with(5, "UPDATE t SET id = 3 WHERE id = 2", 'b', "low"),
                   "stale_token"));
  EXPECT_EQ(all(), "1:x:4 2:x:9");
}

TEST_P(SqliteGuard, F11_TheFenceIsNotSetByHand) {
  ASSERT_EQ(with(5, "INSERT INTO t(id, v) VALUES (1, 'x')"), "");
  for (const char* sql :
       {"UPDATE t SET fence_token = 99", "UPDATE t SET fence_token = 0",
        "UPDATE t SET fence_token = NULL", "UPDATE t SET fence_token = 'x'",
        "UPDATE OR REPLACE t SET fence_token = NULL",
        "UPDATE OR IGNORE t SET fence_token = 99",
        "INSERT INTO t(id, fence_token) VALUES (2, 99)",
        "INSERT INTO t(id, fence_token) VALUES (2, -1)",
        "INSERT INTO t(id, fence_token) VALUES (2, NULL)"}) {
    EXPECT_NE(with(6, sql), "") << sql;
    EXPECT_EQ(all(), "1:x:5") << sql;
  }
  EXPECT_EQ(with(6, "UPDATE t SET fence_token = 6"), "");
  EXPECT_EQ(all(), "1:x:6");
}

TEST_P(SqliteGuard, ATokenLeftBehindCountsForNothingOnceAnotherCame) {
  db_.must(present(5));  // and never deleted
  EXPECT_EQ(db_.run("INSERT INTO t(id, v) VALUES (1, 'x')"), "");
  auto s = file_.open();
  ASSERT_EQ(outcome_of(s.claim(granted({.token = 6, .owner = 'b'}))), "ok");
  EXPECT_TRUE(says(db_.run("UPDATE t SET v = 'y'"), "stale_token"));
  // The next one clears it away.
  EXPECT_EQ(with(6, "UPDATE t SET v = 'z'", 'b'), "");
  EXPECT_TRUE(says(db_.run("UPDATE t SET v = 'y'"), "misconfigured"));
  EXPECT_EQ(db_.run("INSERT INTO lastdoor_presented SELECT resource, token, "
                    "owner, source FROM lastdoor_marks"),
            "");
  EXPECT_NE(db_.run("UPDATE lastdoor_presented SET token = 99"), "");
}

TEST_P(SqliteGuard, TheStorePassesItsOwnGuard) {
  auto s = file_.open();
  const auto g = granted({.token = 5});
  EXPECT_EQ(outcome_of(s.write(g, upsert("t").key("id", 1).set("v", "x"))),
            GetParam().table.name == std::string_view{"composite"}
                ? "invalid_argument"
                : "ok");
  EXPECT_EQ(outcome_of(s.write(g, insert("t").key("id", 2).set("v", "x"))),
            "ok");
  EXPECT_EQ(outcome_of(s.write(g, update("t").key("id", 2).set("v", "y"))),
            "ok");
  EXPECT_EQ(outcome_of(s.transaction(g,
                                     [](sqlite3* db) {
                                       sqlite3_exec(db,
                                                    "UPDATE t SET v = v || '!'",
                                                    nullptr, nullptr, nullptr);
                                     })),
            "ok");
  EXPECT_EQ(db_.one("SELECT v || fence_token FROM t WHERE id = 2"), "y!5");
  EXPECT_EQ(outcome_of(s.write(g, erase("t").key("id", 2))), "ok");
  EXPECT_EQ(db_.one("SELECT count(*) FROM lastdoor_presented"), "0");

  ASSERT_EQ(with(9, "INSERT INTO t(id, v) VALUES (7, 'x')", 'b', "high"), "");
  auto late = s.write(g, update("t").key("id", 7).set("v", "y"));
  ASSERT_EQ(outcome_of(late), "stale_token");
  EXPECT_EQ(late.error().seen(), 9);
  EXPECT_EQ(outcome_of(s.write(g, insert("t").key("id", 7).set("v", "y"))),
            "stale_token");
  sqlite_store_options column;
  column.ledger = false;
  auto bare = file_.open(column);
  EXPECT_EQ(outcome_of(bare.write(granted({.token = 50}),
                                  update("t").key("id", 7).set("v", "y"))),
            "misconfigured");
}

TEST_P(SqliteGuard, AuditRecordsAndRefusesNothing) {
  ASSERT_EQ(with(9, "INSERT INTO t(id, v) VALUES (1, 'x')"), "");
  guard(guard_mode::audit);
  EXPECT_EQ(db_.run("UPDATE t SET v = 'y' WHERE id = 1"), "");
  EXPECT_EQ(with(5, "UPDATE t SET v = 'z' WHERE id = 1", 'b', "low"), "");
  EXPECT_EQ(all(), "1:z:9");
  EXPECT_EQ(with(10, "UPDATE t SET v = 'w' WHERE id = 1"), "");
  EXPECT_EQ(all(), "1:w:10");
  EXPECT_EQ(db_.rows("SELECT table_name, operation, trim(row_key, '1, '''), "
                     "substr(reason, 1, 11), coalesce(resource, '-'), "
                     "coalesce(presented, '-'), fence FROM lastdoor_audit"),
            (std::vector<std::string>{"t|update||misconfigur|-|-|9",
                                      "t|update||stale_token|low|5|9"}));
  EXPECT_EQ(db_.run("DELETE FROM t"), "");
  EXPECT_EQ(db_.one("SELECT operation FROM lastdoor_audit "
                    "ORDER BY id DESC LIMIT 1"),
            "delete");
}

TEST_P(SqliteGuard, AuditNeverLowersAFence) {
  ASSERT_EQ(with(9, "INSERT INTO t(id, u, v) VALUES (1, 'one', 'x')"), "");
  guard(guard_mode::audit);
  for (const char* sql :
       {"UPDATE t SET fence_token = 3", "UPDATE t SET v = 'y', fence_token = 0",
        "REPLACE INTO t(id, u, v) VALUES (1, 'one', 'r')",
        "REPLACE INTO t(id, u, v, fence_token) VALUES (1, 'one', 's', 4)",
        "INSERT INTO t(id, v) VALUES (1, 'u') "
        "ON CONFLICT DO UPDATE SET v = 'u', fence_token = 2"}) {
    EXPECT_EQ(db_.run(sql), "") << sql;
    EXPECT_EQ(db_.one("SELECT fence_token FROM t WHERE id = 1"), "9") << sql;
  }
  EXPECT_EQ(
      with(5, "REPLACE INTO t(id, u, v) VALUES (2, 'one', 'x')", 'b', "low"),
      "");
  EXPECT_EQ(db_.rows("SELECT id, fence_token FROM t"),
            (std::vector<std::string>{"2|9"}));
  // What came before leaves no trace on what comes after.
  EXPECT_EQ(
      with(5, "INSERT INTO t(id, u, v) VALUES (3, 'three', 'x')", 'b', "low"),
      "");
  EXPECT_EQ(db_.one("SELECT fence_token FROM t WHERE id = 3"), "5");
  EXPECT_EQ(db_.run("INSERT INTO t(id, u, v) VALUES (4, 'four', 'x')"), "");
  EXPECT_EQ(db_.one("SELECT fence_token FROM t WHERE id = 4"), "0");
}

TEST_P(SqliteGuard, TheStoreLeavesNoTraceInTheAudit) {
  auto s = file_.open();
  const auto g = granted({.token = 5});
  guard(guard_mode::none);
  ASSERT_EQ(outcome_of(s.write(g, insert("t").key("id", 1).set("v", 0))), "ok");
  const auto add = update("t").key("id", 1).add("v", 1);
  ASSERT_EQ(outcome_of(s.write(g, add)), "ok");  // now its shape is known
  guard(guard_mode::audit);
  ASSERT_EQ(outcome_of(s.write(g, add)), "ok");
  guard(guard_mode::strict);
  ASSERT_EQ(outcome_of(s.write(g, add)), "ok");
  guard(guard_mode::none);
  ASSERT_EQ(outcome_of(s.write(g, add)), "ok");
  EXPECT_EQ(db_.one("SELECT v FROM t"), "4");
  EXPECT_EQ(db_.one("SELECT count(*) FROM lastdoor_audit"), "0");
}

std::vector<setting> settings() {
  std::vector<setting> all;
  for (const auto& t : tables) {
    all.push_back({t, false});
    all.push_back({t, true});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Tables, SqliteGuard, ::testing::ValuesIn(settings()),
                         [](const auto& p) {
                           return std::string{p.param.table.name} +
                                  (p.param.recursive ? "_recursive" : "");
                         });

// The stock shell: what it prints, errors included.
std::string shell(const std::string& path, const std::string& sql) {
  const std::string command = "sqlite3 '" + path + "' \"" + sql + "\" 2>&1";
  FILE* out = ::popen(command.c_str(), "r");
  std::string text;
  std::array<char, 256> part{};
  while (out != nullptr &&
         std::fgets(part.data(), part.size(), out) != nullptr) {
    text += part.data();
  }
  if (out != nullptr) {
    ::pclose(out);
  }
  return text;
}

TEST(SqliteGuardInTheShell, S06_NeedsNoFunctionOfAnApplication) {
  if (!shell(":memory:", "SELECT 1").starts_with("1")) {
    GTEST_SKIP() << "there is no sqlite3 shell here";
  }
  const sqlite_file file;
  file.table(
      "CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT);"
      "CREATE TABLE free (v)",
      {.table = "t", .guard = guard_mode::strict});
  const std::string untrusted = "PRAGMA trusted_schema=0; ";
  const auto guarded = [&](std::int64_t token, const std::string& sql) {
    return shell(file.path, untrusted + "BEGIN IMMEDIATE; " + present(token) +
                                "; " + sql +
                                "; DELETE FROM lastdoor_presented; COMMIT;");
  };
  EXPECT_EQ(shell(file.path, untrusted + "INSERT INTO free VALUES (1)"), "");
  EXPECT_EQ(guarded(9, "REPLACE INTO t VALUES (1, 'x', 0)"), "");
  EXPECT_NE(shell(file.path, untrusted + "REPLACE INTO t VALUES (1, 'x', 5)")
                .find("lastdoor: misconfigured"),
            std::string::npos);
  EXPECT_NE(shell(file.path, untrusted + "UPDATE t SET v = 'y'")
                .find("lastdoor: misconfigured"),
            std::string::npos);
  EXPECT_NE(guarded(8, "UPDATE t SET v = 'y'").find("lastdoor: stale_token"),
            std::string::npos);
  EXPECT_EQ(guarded(9, "UPDATE t SET v = 'y'"), "");
  EXPECT_EQ(file.plain().one("SELECT v || fence_token FROM t"), "y9");
  EXPECT_EQ(shell(file.path, "PRAGMA integrity_check"), "ok\n");
}

}  // namespace
}  // namespace lastdoor::testing

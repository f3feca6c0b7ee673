// The SQLite store over forks, many shapes of statements, and kinds of values.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <lastdoor/testing/store_contract_client.hpp>

#include "stores/sqlite_store_impl.hpp"
#include "support/sqlite_file.hpp"

namespace lastdoor::testing {
namespace {

class SqliteStoreValues : public ::testing::Test {
 protected:
  void make_items() {
    file_.table(
        "CREATE TABLE items (id TEXT PRIMARY KEY, qty INTEGER, note TEXT);"
        "INSERT INTO items VALUES ('a', 10, 'x')",
        {.table = "items"});
  }
  static std::string write(store& s, const statement& what) {
    return outcome_of(s.write(granted({}), what));
  }
  std::string one(const std::string& sql) { return file_.plain().one(sql); }

  sqlite_file file_;
};

// For tests with many commits: they are not about power cuts.
sqlite_store_options unsynced() {
  sqlite_store_options o;
  o.on_open = [](sqlite3* db) -> result<void> {
    sqlite3_exec(db, "PRAGMA synchronous=OFF", nullptr, nullptr, nullptr);
    return {};
  };
  return o;
}

TEST_F(SqliteStoreValues, AForkedChildIsRefused) {
  make_items();
  auto s = file_.open();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused =
        outcome_of(s.claim(granted({}))) == "invalid_argument" &&
        outcome_of(s.write(granted({}), put_qty("a", 1))) ==
            "invalid_argument" &&
        outcome_of(s.transaction(granted({}), [](sqlite3*) {})) ==
            "invalid_argument";
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(write(s, put_qty("a", 1)), "ok");
}

TEST_F(SqliteStoreValues, ManyShapesOfStatementsDoNotPileUp) {
  make_items();
  auto s = file_.open(unsynced());
  for (int n = 1; n <= 270; ++n) {
    auto what = put_qty("a", n);
    what.returning(
        std::vector<std::string>(static_cast<std::size_t>(n), "qty"));
    auto r = s.write(granted({}), what);
    ASSERT_EQ(outcome_of(r), "ok");
    ASSERT_EQ(r->returned.at(0).back(), value{n});
  }
}

TEST_F(SqliteStoreValues, ValuesOfEveryKindArriveAsTheyAre) {
  file_.table("CREATE TABLE t (id INTEGER PRIMARY KEY, v)", {.table = "t"});
  auto s = file_.open();
  const value kinds[] = {nullptr,
                         7,
                         -2.5,
                         "",
                         "\xc3\xb6\n",
                         blob{},
                         blob{std::byte{0}, std::byte{255}}};
  for (const auto& v : kinds) {
    auto r = s.write(granted({}),
                     upsert("t").key("id", 1).set("v", v).returning({"v"}));
    ASSERT_EQ(outcome_of(r), "ok");
    EXPECT_EQ(r->returned.at(0).at(0), v) << v.describe();
  }
  EXPECT_EQ(write(s, upsert("t").key("id", 2).subtract("v", 2.5)), "ok");
  EXPECT_EQ(one("SELECT v FROM t WHERE id = 2"), "-2.5");
}

}  // namespace
}  // namespace lastdoor::testing

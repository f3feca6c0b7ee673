// The SQLite store over forks, many shapes of statements, and kinds of values.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdint>
#include <lastdoor/testing/store_contract_client.hpp>
#include <limits>
#include <string>

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

// SQLite would make it a floating point number, near 2^63 and not it.
TEST_F(SqliteStoreValues, ASumThatDoesNotFitIsRefused) {
  make_items();
  auto s = file_.open();
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  ASSERT_EQ(write(s, update("items").key("id", "a").set("qty", most - 1)),
            "ok");
  const auto more = [](std::int64_t n) {
    return std::array{update("items").key("id", "a").add("qty", n),
                      update("items").key("id", "a").subtract("qty", -n),
                      update("items").every_row().add("qty", n),
                      upsert("items").key("id", "a").add("qty", n)};
  };
  for (const auto& what : more(2)) {
    EXPECT_EQ(write(s, what), "invalid_argument");
    EXPECT_EQ(one("SELECT qty FROM items"), std::to_string(most - 1));
  }
  for (const auto& what : more(1)) {
    EXPECT_EQ(write(s, what), "ok");
    EXPECT_EQ(one("SELECT qty FROM items"), std::to_string(most));
    ASSERT_EQ(write(s, update("items").key("id", "a").subtract("qty", 1)),
              "ok");
  }
  EXPECT_EQ(write(s, update("items").key("id", "a").add("qty", 0.5)), "ok");
  EXPECT_EQ(one("SELECT typeof(qty) FROM items"), "real");
}

}  // namespace
}  // namespace lastdoor::testing

// Claimed transactions on an SQLite file, lost answers, callers' own
// transactions.
#include <gtest/gtest.h>

#include <functional>
#include <lastdoor/testing/store_contract_client.hpp>
#include <stdexcept>
#include <thread>

#include "stores/sqlite_store_impl.hpp"
#include "support/sqlite_file.hpp"

namespace lastdoor::testing {
namespace {

using sqlite::fault_point;

std::string run(sqlite3* db, const std::string& sql) {
  return sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK
             ? ""
             : sqlite3_errmsg(db);
}

class SqliteTransaction : public ::testing::Test {
 protected:
  SqliteTransaction() {
    file_.table(
        "CREATE TABLE items (id TEXT PRIMARY KEY, qty INTEGER);"
        "INSERT INTO items VALUES ('a', 10), ('b', 20)",
        {.table = "items"});
  }
  // A store whose commits can lose their answer.
  sqlite_store faulty(sqlite::fault_hook hook) {
    auto made = sqlite_store::impl::open(file_.path, {}).value();
    made->faults = std::move(hook);
    return sqlite_store{std::move(made)};
  }
  std::string one(const std::string& sql) { return file_.plain().one(sql); }
  std::string qty(const std::string& id) {
    return one("SELECT qty FROM items WHERE id = '" + id + "'");
  }
  std::string mark() {
    return one("SELECT coalesce(max(token), 0) FROM lastdoor_marks");
  }

  sqlite_file file_;
  sqlite_store store_ = file_.open();
  grant five_ = granted({.token = 5});
};

TEST_F(SqliteTransaction, CommitsWhatTheFunctionDidAndGivesItsValueBack) {
  auto r = store_.transaction(five_, [](sqlite3* db) {
    EXPECT_EQ(run(db, "UPDATE items SET qty = 1 WHERE id = 'a'"), "");
    EXPECT_EQ(run(db, "INSERT INTO items(id, qty) VALUES ('c', 3)"), "");
    return std::string{"done"};
  });
  EXPECT_EQ(r.value(), "done");
  EXPECT_EQ(qty("a") + qty("c"), "13");
  EXPECT_EQ(mark(), "5");
  EXPECT_EQ(outcome_of(store_.transaction(granted({.token = 4}),
                                          [](sqlite3*) { FAIL(); })),
            "stale_token");
}

TEST_F(SqliteTransaction, AnErrorOrAnExceptionTakesEverythingBack) {
  auto r = store_.transaction(five_, [](sqlite3* db) -> result<int> {
    run(db, "UPDATE items SET qty = 1");
    return fail(errc::busy, "not today");
  });
  EXPECT_EQ(outcome_of(r), "busy");
  EXPECT_EQ(r.error().text(), "not today");
  const auto throws = [&] {
    store_
        .transaction(five_,
                     [](sqlite3* db) {
                       run(db, "UPDATE items SET qty = 1");
                       throw std::out_of_range{"theirs"};
                     })
        .ignore();
  };
  EXPECT_THROW(throws(), std::out_of_range);
  EXPECT_EQ(qty("a"), "10");
  EXPECT_EQ(mark(), "0");
  EXPECT_EQ(outcome_of(store_.write(five_, put_qty("a", 2))), "ok");
}

TEST_F(SqliteTransaction, TheFunctionCannotLeaveTheTransaction) {
  const std::string forbidden[] = {
      "BEGIN",
      "COMMIT",
      "END",
      "ROLLBACK",
      "ATTACH ':memory:' AS m",
      "DETACH temp",
      "PRAGMA writable_schema=ON",
      "PRAGMA ignore_check_constraints=ON",
      "PRAGMA journal_mode=DELETE",
      "PRAGMA synchronous=OFF",
      "PRAGMA recursive_triggers=ON",
      "DELETE FROM lastdoor_marks",
      "UPDATE lastdoor_marks SET token = 99",
      "REPLACE INTO LASTDOOR_MARKS SELECT * FROM lastdoor_marks",
      "INSERT INTO lastdoor_presented SELECT * FROM lastdoor_marks",
      "INSERT INTO lastdoor_retired_sources VALUES ('test/one', 'x')",
      "DROP TABLE lastdoor_audit",
      "DROP TRIGGER lastdoor_marks_update",
      "DROP VIEW lastdoor_bearer",
      "ALTER TABLE lastdoor_marks ADD COLUMN x",
      "CREATE TRIGGER x BEFORE INSERT ON lastdoor_marks BEGIN SELECT 1; END",
      "CREATE TRIGGER lastdoor_guard_x BEFORE INSERT ON items"
      " BEGIN SELECT 1; END",
      "CREATE TEMP TABLE lastdoor_marks (x)",
      "CREATE INDEX lastdoor_x ON items(qty)",
  };
  const std::string allowed[] = {
      "SAVEPOINT s",
      "UPDATE items SET qty = 0 WHERE id = 'b'",
      "ROLLBACK TO s",
      "RELEASE s",
      "SELECT * FROM lastdoor_marks",
      "PRAGMA table_info(items)",
      "PRAGMA user_version",
      "PRAGMA defer_foreign_keys=ON",
      "CREATE TABLE theirs (x)",
      "CREATE INDEX theirs_x ON theirs(x)",
      "CREATE TEMP TABLE scratch AS SELECT 1",
      "UPDATE items SET qty = 2 WHERE id = 'a'",
  };
  auto r = store_.transaction(five_, [&](sqlite3* db) {
    for (const auto& sql : forbidden) {
      EXPECT_NE(run(db, sql), "") << sql;
      EXPECT_EQ(sqlite3_get_autocommit(db), 0) << sql;
    }
    for (const auto& sql : allowed) {
      EXPECT_EQ(run(db, sql), "") << sql;
    }
  });
  EXPECT_EQ(outcome_of(r), "ok");
  EXPECT_EQ(qty("a") + "," + qty("b"), "2,20");
  EXPECT_EQ(mark(), "5");
}

TEST_F(SqliteTransaction, NothingIsCommittedOnceSqliteHasRolledBack) {
  auto r = store_.transaction(five_, [](sqlite3* db) {
    run(db, "UPDATE items SET qty = 1");
    EXPECT_NE(run(db, "INSERT OR ROLLBACK INTO items(id) VALUES ('a')"), "");
    EXPECT_NE(sqlite3_get_autocommit(db), 0);
    // A careless function goes on, outside of any transaction now.
    EXPECT_NE(run(db, "UPDATE items SET qty = 2"), "");
    EXPECT_NE(run(db, "CREATE TABLE stray (x)"), "");
  });
  EXPECT_EQ(outcome_of(r), "unavailable");
  EXPECT_EQ(qty("a"), "10");
  EXPECT_EQ(one("SELECT count(*) FROM sqlite_schema WHERE name = 'stray'"),
            "0");
  EXPECT_EQ(mark(), "0");
}

TEST_F(SqliteTransaction, AHandleThatWasKeptCommitsNothing) {
  sqlite3* kept = nullptr;
  sqlite3_stmt* prepared = nullptr;
  ASSERT_TRUE(store_.transaction(five_, [&](sqlite3* db) {
    kept = db;
    sqlite3_prepare_v2(db, "UPDATE items SET qty = 0", -1, &prepared, nullptr);
  }));
  ASSERT_NE(prepared, nullptr);
  EXPECT_NE(sqlite3_step(prepared), SQLITE_DONE);
  sqlite3_finalize(prepared);
  EXPECT_NE(run(kept, "UPDATE items SET qty = 0"), "");
  EXPECT_EQ(qty("a"), "10");
}

// SQLite has taken the claim back, and a SAVEPOINT outside of a transaction
// begins one that never claimed.
TEST_F(SqliteTransaction, G4_NothingIsCommittedByATransactionWithoutTheClaim) {
  const auto six = granted({.token = 6, .owner = 'b'});
  file_.plain().must(
      "CREATE TABLE trap (x); CREATE TRIGGER trapped BEFORE INSERT ON trap "
      "BEGIN SELECT RAISE(ROLLBACK, 'theirs'); END");
  for (const bool prepared_before : {false, true}) {
    for (const char* end : {"INSERT OR ROLLBACK INTO items(id) VALUES ('a')",
                            "INSERT INTO trap VALUES (1)"}) {
      sqlite3_stmt* begin = nullptr;
      auto r = store_.transaction(
          five_,
          [&](sqlite3* db) {
            if (prepared_before) {
              sqlite3_prepare_v2(db, "SAVEPOINT s", -1, &begin, nullptr);
            }
            EXPECT_NE(run(db, end), "");
            EXPECT_EQ(outcome_of(file_.open().write(six, put_qty("a", 66),
                                                    {.sequence = 3})),
                      "ok");
            if (prepared_before) {
              EXPECT_EQ(sqlite3_step(begin), SQLITE_DONE);
            } else {
              EXPECT_NE(run(db, "SAVEPOINT s"), "");
            }
            run(db, "UPDATE items SET qty = 555 WHERE id = 'a'");
          },
          {.sequence = 9});
      sqlite3_finalize(begin);
      EXPECT_EQ(outcome_of(r), "unavailable") << end;
      EXPECT_EQ(qty("a"), "66") << end;
      EXPECT_EQ(one("SELECT token || ' ' || last_sequence FROM lastdoor_marks"),
                "6 3")
          << end;
      file_.plain().must(
          "DROP TRIGGER IF EXISTS lastdoor_marks_delete;"
          "DELETE FROM lastdoor_marks");
    }
  }
}

TEST_F(SqliteTransaction, G6_ATransactionLeftOpenBetweenCallsIsTakenBack) {
  sqlite3_stmt* begin = nullptr;
  sqlite3_stmt* half = nullptr;
  ASSERT_TRUE(store_.transaction(five_, [&](sqlite3* db) {
    sqlite3_prepare_v2(db, "SAVEPOINT s", -1, &begin, nullptr);
    sqlite3_prepare_v2(db, "UPDATE items SET qty = 777 RETURNING id", -1, &half,
                       nullptr);
  }));
  for (auto* kept : {begin, half}) {
    const int rc = sqlite3_step(kept);
    EXPECT_TRUE(rc == SQLITE_DONE || rc == SQLITE_ROW);
    auto r = store_.write(five_, put_qty("a", 1));
    ASSERT_EQ(outcome_of(r), "unavailable");
    EXPECT_NE(r.error().text().find("left open"), std::string::npos);
    EXPECT_EQ(qty("a") + "," + qty("b"), kept == begin ? "10,20" : "2,20");
    ASSERT_EQ(outcome_of(store_.write(five_, put_qty("a", 2))), "ok");
    EXPECT_EQ(qty("a"), "2");
  }
  sqlite3_finalize(begin);
  sqlite3_finalize(half);
  sqlite_store_options o;
  o.on_open = [](sqlite3* db) -> result<void> {
    run(db, "BEGIN");
    return {};
  };
  EXPECT_EQ(outcome_of(open_sqlite_store(file_.path, o)), "misconfigured");
}

TEST_F(SqliteTransaction, CursorsLeftOpenDoNotHinderTheCommit) {
  for (int i = 0; i < 3; ++i) {
    sqlite3_stmt* reading = nullptr;
    sqlite3_stmt* returning = nullptr;
    auto r = store_.transaction(five_, [&](sqlite3* db) {
      sqlite3_prepare_v2(db, "SELECT * FROM items", -1, &reading, nullptr);
      EXPECT_EQ(sqlite3_step(reading), SQLITE_ROW);
      sqlite3_prepare_v2(db, "UPDATE items SET qty = qty + 1 RETURNING id", -1,
                         &returning, nullptr);
      EXPECT_EQ(sqlite3_step(returning), SQLITE_ROW);
    });
    EXPECT_EQ(outcome_of(r), "ok");
    // Another writer; a snapshot that stayed open would now be too old.
    file_.plain().must("UPDATE items SET qty = qty + 1");
    sqlite3_finalize(reading);
    sqlite3_finalize(returning);
  }
  EXPECT_EQ(qty("a"), "16");
}

TEST_F(SqliteTransaction, AFunctionThatCallsTheStoreIsToldSo) {
  auto r = store_.transaction(five_, [&](sqlite3*) {
    EXPECT_EQ(outcome_of(store_.write(five_, put_qty("a", 1))),
              "invalid_argument");
    EXPECT_EQ(outcome_of(store_.claim(five_)), "invalid_argument");
    EXPECT_EQ(outcome_of(store_.transaction(five_, [](sqlite3*) {})),
              "invalid_argument");
    EXPECT_EQ(outcome_of(store_.read_mark(five_.resource())),
              "invalid_argument");
  });
  EXPECT_EQ(outcome_of(r), "ok");
  EXPECT_EQ(outcome_of(store_.claim(five_)), "ok");
}

TEST_F(SqliteTransaction, ValidityThatEndsOnTheWayCommitsNothing) {
  auto time = std::make_shared<set_clock>();
  sqlite_store_options o;
  o.time = time;
  auto s = file_.open(o);
  const auto g =
      granted({.token = 5, .valid_until = time_point{std::chrono::hours{2}}});
  auto r = s.transaction(g, [&](sqlite3* db) {
    run(db, "UPDATE items SET qty = 0");
    time->set(std::chrono::hours{2});
    return 7;
  });
  EXPECT_EQ(outcome_of(r), "lease_lost");
  EXPECT_EQ(qty("a"), "10");
  EXPECT_EQ(mark(), "0");
}

TEST_F(SqliteTransaction, ADeferredConstraintFailsTheCommitAndOnlyThat) {
  sqlite_store_options o;
  o.on_open = [](sqlite3* db) -> result<void> {
    run(db, "PRAGMA foreign_keys=ON");
    return {};
  };
  file_.plain().must(
      "CREATE TABLE c (pid REFERENCES items(id) DEFERRABLE INITIALLY "
      "DEFERRED)");
  auto s = file_.open(o);
  auto r = s.transaction(five_, [](sqlite3* db) {
    EXPECT_EQ(run(db, "INSERT INTO c VALUES ('nobody')"), "");
  });
  EXPECT_EQ(outcome_of(r), "precondition_failed");
  EXPECT_EQ(one("SELECT count(*) FROM c"), "0");
  EXPECT_EQ(outcome_of(s.write(five_, put_qty("a", 1))), "ok");
}

TEST_F(SqliteTransaction, F08_ANumberedTransactionRunsOnce) {
  int calls = 0;
  const auto again = [&] {
    return store_.transaction(
        five_,
        [&](sqlite3* db) {
          ++calls;
          run(db, "UPDATE items SET qty = qty - 1 WHERE id = 'a'");
        },
        {.sequence = 1});
  };
  EXPECT_EQ(outcome_of(again()), "ok");
  EXPECT_EQ(outcome_of(again()), "ok");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(qty("a"), "9");
  // A result was not kept, and is not made up.
  auto valued =
      store_.transaction(five_, [](sqlite3*) { return 7; }, {.sequence = 1});
  EXPECT_EQ(outcome_of(valued), "precondition_failed");
  EXPECT_EQ(
      outcome_of(store_.transaction(five_, [](sqlite3*) {}, {.sequence = 0})),
      "invalid_argument");
}

TEST_F(SqliteTransaction, F07_AStaleRowInTheSecondTableTakesTheFirstBack) {
  file_.table(
      "CREATE TABLE other (id INTEGER PRIMARY KEY, v INTEGER);"
      "INSERT INTO other VALUES (1, 0)",
      {.table = "other", .guard = guard_mode::strict});
  const auto nine = granted({.token = 9, .resource = "nine"});
  ASSERT_EQ(
      outcome_of(store_.write(nine, update("other").key("id", 1).set("v", 9))),
      "ok");
  auto r = store_.transaction(five_, [](sqlite3* db) -> result<void> {
    EXPECT_EQ(run(db, "UPDATE items SET qty = 0 WHERE id = 'a'"), "");
    const auto said = run(db, "UPDATE other SET v = 5 WHERE id = 1");
    EXPECT_NE(said, "");
    return fail(errc::internal, said);
  });
  EXPECT_EQ(outcome_of(r), "stale_token") << r.error().message();
  EXPECT_EQ(r.error().presented(), 5);
  EXPECT_EQ(qty("a"), "10");
  EXPECT_EQ(one("SELECT v FROM other"), "9");
}

TEST_F(SqliteTransaction, F08_ALostAnswerIsSettledByTheNumber) {
  for (const auto lost :
       {fault_point::before_commit, fault_point::after_commit}) {
    const bool applied = lost == fault_point::after_commit;
    auto s = faulty([&](fault_point p) { return p == lost; });
    const auto g = granted({.token = 5, .resource = applied ? "x" : "y"});
    const auto before = std::stoi(qty("a"));
    const auto take = update("items").key("id", "a").subtract("qty", 1);
    auto r = s.write(g, take, {.sequence = 1});
    EXPECT_EQ(outcome_of(r), applied ? "ok" : "unavailable");
    EXPECT_EQ(std::stoi(qty("a")), before - (applied ? 1 : 0));
    auto t = s.transaction(
        g,
        [](sqlite3* db) {
          run(db, "UPDATE items SET qty = qty - 1 WHERE id = 'a'");
          return 42;
        },
        {.sequence = 2});
    EXPECT_EQ(outcome_of(t), applied ? "ok" : "unavailable");
    EXPECT_EQ(std::stoi(qty("a")), before - (applied ? 2 : 0));
    EXPECT_EQ(outcome_of(s.claim(granted({.token = 6, .resource = "z"}))),
              applied ? "ok" : "unavailable");
  }
  EXPECT_EQ(one("SELECT count(*) FROM lastdoor_replaced"), "0");
}

TEST_F(SqliteTransaction, ALostAnswerWithoutANumberIsInDoubt) {
  auto s = faulty([](fault_point p) { return p == fault_point::after_commit; });
  // The first write of a grant claims, so it commits a transaction.
  auto r = s.write(five_, put_qty("a", 1));
  ASSERT_EQ(outcome_of(r), "in_doubt");
  EXPECT_FALSE(r.error().retryable());
  EXPECT_EQ(r.error().presented(), 5);
  EXPECT_EQ(qty("a"), "1");
}

TEST_F(SqliteTransaction, ANewerGrantInBetweenLeavesTheDoubt) {
  bool once = true;
  auto s = faulty([&](fault_point p) {
    if (p != fault_point::after_commit || !std::exchange(once, false)) {
      return false;
    }
    store_.claim(granted({.token = 6, .owner = 'b'})).value();
    return true;
  });
  EXPECT_EQ(outcome_of(s.write(five_, put_qty("a", 1), {.sequence = 1})),
            "in_doubt");
}

TEST_F(SqliteTransaction, ClaimInTheCallersOwnTransaction) {
  auto db = file_.plain();
  EXPECT_EQ(outcome_of(sqlite_store::claim_in(db.raw(), five_)),
            "invalid_argument");
  db.must("BEGIN IMMEDIATE");
  ASSERT_EQ(outcome_of(sqlite_store::claim_in(db.raw(), five_)), "ok");
  db.must("UPDATE items SET qty = 1 WHERE id = 'a'");
  ASSERT_EQ(outcome_of(sqlite_store::finish_in(db.raw(), five_)), "ok");
  db.must("COMMIT");
  EXPECT_EQ(qty("a"), "1");
  EXPECT_EQ(mark(), "5");
  db.must("BEGIN IMMEDIATE");
  EXPECT_EQ(outcome_of(sqlite_store::claim_in(db.raw(), granted({.token = 4}))),
            "stale_token");
  db.must("ROLLBACK");
  EXPECT_EQ(outcome_of(sqlite_store::finish_in(db.raw(), five_)),
            "invalid_argument");
}

TEST_F(SqliteTransaction, S01_ADeferredTransactionIsToldToBeginAgain) {
  auto db = file_.plain();
  db.must("BEGIN");
  static_cast<void>(db.rows("SELECT * FROM items"));
  ASSERT_EQ(outcome_of(store_.claim(granted({.resource = "other"}))), "ok");
  auto r = sqlite_store::claim_in(db.raw(), five_);
  ASSERT_EQ(outcome_of(r), "unavailable");
  EXPECT_TRUE(r.error().retryable());
  EXPECT_NE(r.error().message().find("BEGIN IMMEDIATE"), std::string::npos);
  db.must("ROLLBACK");
}

TEST_F(SqliteTransaction, FinishClaimsAgainWhatARollbackToTookBack) {
  auto db = file_.plain();
  db.must("BEGIN IMMEDIATE; SAVEPOINT s");
  ASSERT_EQ(outcome_of(sqlite_store::claim_in(db.raw(), five_)), "ok");
  db.must("ROLLBACK TO s; UPDATE items SET qty = 0");
  ASSERT_EQ(outcome_of(sqlite_store::finish_in(db.raw(), five_)), "ok");
  db.must("COMMIT");
  EXPECT_EQ(mark(), "5");
}

}  // namespace
}  // namespace lastdoor::testing

// Claimed transactions: what a caller's function may do, and how they end.
#include <gmock/gmock.h>

#include <lastdoor/testing/matchers.hpp>
#include <pqxx/connection>
#include <pqxx/dbtransaction>
#include <pqxx/nontransaction>
#include <pqxx/result>
#include <pqxx/subtransaction>
#include <pqxx/transaction>
#include <pqxx/transaction_base>
#include <thread>

#include "support/pg_ledger.hpp"

namespace lastdoor::support {
namespace {

using namespace std::chrono_literals;
using lastdoor::testing::FailsWith;
using lastdoor::testing::granted;
using lastdoor::testing::HoldsValue;
using lastdoor::testing::IsOk;
using lastdoor::testing::terms;
using ::testing::HasSubstr;

class PostgresTransaction : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_POSTGRES();
    db_.emplace();
    db_->run("CREATE TABLE a (id integer PRIMARY KEY, v integer)");
    db_->run("CREATE TABLE b (id integer PRIMARY KEY, v integer)");
    db_->run("INSERT INTO a VALUES (1, 0)");
    db_->run("INSERT INTO b VALUES (1, 0)");
    store_.emplace(db_->open());
  }
  [[nodiscard]] std::string v(const std::string& table) const {
    return db_->value("SELECT v FROM " + table + " WHERE id = 1");
  }
  static void add(pqxx::transaction_base& tx, const std::string& table) {
    tx.exec("UPDATE " + table + " SET v = v + 1 WHERE id = 1");
  }

  const grant five_ = granted({.token = 5});
  std::optional<ledger_database> db_;
  std::optional<postgres_store> store_;
};

TEST_F(PostgresTransaction, GivesBackWhatTheFunctionGives) {
  EXPECT_THAT(store_->transaction(five_, [](auto& tx) { add(tx, "a"); }),
              IsOk());
  EXPECT_THAT(store_->transaction(five_,
                                  [](pqxx::transaction_base& tx) {
                                    add(tx, "a");
                                    return 42;
                                  }),
              HoldsValue(42));
  EXPECT_THAT(
      store_->transaction(
          five_,
          [](pqxx::transaction_base&) -> result<std::string> { return "x"; }),
      HoldsValue(std::string{"x"}));
  EXPECT_EQ(v("a"), "2");
}

TEST_F(PostgresTransaction, F07_SeveralTablesAreOneUnit) {
  const auto refused = store_->transaction(
      five_, [](pqxx::transaction_base& tx) -> result<void> {
        add(tx, "a");
        add(tx, "b");
        return fail(errc::precondition_failed, "not today");
      });
  EXPECT_THAT(refused, FailsWith(errc::precondition_failed));
  struct surprise {};
  EXPECT_THROW(store_
                   ->transaction(five_,
                                 [](pqxx::transaction_base& tx) {
                                   add(tx, "a");
                                   throw surprise{};
                                 })
                   .ignore(),
               surprise);
  EXPECT_EQ(v("a") + v("b"), "00");
  EXPECT_THAT(
      store_->transaction(five_, [](auto& tx) { add(tx, "a"), add(tx, "b"); }),
      IsOk());
  EXPECT_EQ(v("a") + v("b"), "11");
}

TEST_F(PostgresTransaction, F07_AStaleRowInTheSecondTableUndoesTheFirst) {
  db_->fence("a", guard_mode::strict);
  db_->fence("b", guard_mode::strict);
  const auto nine = granted({.token = 9, .resource = "other"});
  ASSERT_THAT(store_->transaction(nine, [](auto& tx) { add(tx, "b"); }),
              IsOk());
  const auto stale =
      store_->transaction(five_, [](auto& tx) { add(tx, "a"), add(tx, "b"); });
  ASSERT_THAT(stale, FailsWith(errc::stale_token));
  EXPECT_EQ(stale.error().seen(), 9);
  EXPECT_EQ(stale.error().presented(), 5);
  EXPECT_EQ(stale.error().backend(), "LD001");
  EXPECT_EQ(v("a") + v("b"), "01");
}

// The barrier of the next grant waits for a transaction that is under way, by
// the long claim (the first one) and by the short one (every later one).
TEST_F(PostgresTransaction, G5_TheNextBarrierWaitsForATransactionUnderWay) {
  const auto waits = [&] {
    return db_->value(
               "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = "
               "'Lock' AND datname = current_database()") == "1";
  };
  auto other = db_->open();
  for (const bool claimed_before : {false, true}) {
    const std::string resource = claimed_before ? "later" : "first";
    const auto mine = granted({.token = 5, .resource = resource});
    const auto next = granted({.token = 6, .resource = resource, .owner = 'b'});
    if (claimed_before) {
      ASSERT_THAT(store_->claim(mine), IsOk());
    }
    std::thread barrier;
    EXPECT_THAT(store_->transaction(mine,
                                    [&](pqxx::transaction_base& tx) {
                                      barrier = std::thread{[&] {
                                        EXPECT_THAT(other.claim(next), IsOk());
                                      }};
                                      EXPECT_TRUE(eventually(waits))
                                          << resource;
                                      add(tx, "a");
                                    }),
                IsOk());
    barrier.join();
    EXPECT_THAT(store_->transaction(mine, [](auto& tx) { add(tx, "a"); }),
                FailsWith(errc::stale_token));
  }
  EXPECT_EQ(v("a"), "2");
}

// Deadlocks are possible when callers lock in opposite order; each is told
// as retryable, and a repetition of the whole transaction gets through.
TEST_F(PostgresTransaction, F07_ADeadlockIsRetryable) {
  std::atomic<int> deadlocks{0};
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i) {
    all.emplace_back([&, i] {
      const auto g = granted({.token = 5, .resource = "r" + std::to_string(i)});
      auto store = db_->open({.connections = 1});
      for (int n = 0; n < 10;) {
        const auto r = store.transaction(g, [&](auto& tx) {
          add(tx, i % 2 == 0 ? "a" : "b");
          add(tx, i % 2 == 0 ? "b" : "a");
        });
        if (r) {
          ++n;
        } else {
          ++deadlocks;
          ASSERT_THAT(r, FailsWith(errc::unavailable));
        }
      }
    });
  }
  for (auto& t : all) {
    t.join();
  }
  EXPECT_EQ(v("a") + v("b"), "4040");
  RecordProperty("deadlocks", deadlocks.load());
}

TEST_F(PostgresTransaction, CommitOnTheObjectIsLeftToTheStore) {
  EXPECT_THAT(store_->transaction(five_,
                                  [](pqxx::transaction_base& tx) {
                                    add(tx, "a");
                                    tx.commit();
                                  }),
              IsOk());
  EXPECT_EQ(v("a"), "1");
  const auto aborted =
      store_->transaction(five_, [](pqxx::transaction_base& tx) {
        add(tx, "a");
        tx.abort();
      });
  EXPECT_THAT(aborted, FailsWith(errc::precondition_failed));
  EXPECT_EQ(v("a"), "1");
}

TEST_F(PostgresTransaction, AFailureThatTheFunctionSwallowsIsNoSuccess) {
  const auto swallowed =
      store_->transaction(five_, [](pqxx::transaction_base& tx) {
        add(tx, "a");
        try {
          tx.exec("SELECT no_such_column FROM a");
        } catch (const std::exception&) {
        }
      });
  EXPECT_THAT(swallowed, FailsWith(errc::precondition_failed));
  EXPECT_EQ(v("a"), "0");
}

TEST_F(PostgresTransaction, EndingItByTextIsNoticed) {
  const auto ended = store_->transaction(five_, [](pqxx::transaction_base& tx) {
    add(tx, "a");
    tx.exec("ROLLBACK");
  });
  EXPECT_THAT(ended, FailsWith(errc::invalid_argument));
  EXPECT_EQ(v("a"), "0");
  // The connection is in order again.
  EXPECT_THAT(store_->transaction(five_, [](auto& tx) { add(tx, "a"); }),
              IsOk());
}

TEST_F(PostgresTransaction, SavepointsAreFine) {
  const auto done = store_->transaction(five_, [](auto& tx) {
    add(tx, "a");
    try {
      pqxx::subtransaction inner{dynamic_cast<pqxx::dbtransaction&>(tx)};
      inner.exec("UPDATE b SET v = 99");
      inner.exec("SELECT 1 / 0");
    } catch (const std::exception&) {
    }
    add(tx, "a");
  });
  EXPECT_THAT(done, IsOk());
  EXPECT_EQ(v("a") + v("b"), "20");
}

TEST_F(PostgresTransaction, LibpqxxsExceptionsComeOutAsErrors) {
  const auto sql = [&](const char* text) {
    return store_->transaction(
        five_, [&](pqxx::transaction_base& tx) { tx.exec(text); });
  };
  const auto duplicate = sql("INSERT INTO a VALUES (1, 1)");
  ASSERT_THAT(duplicate, FailsWith(errc::precondition_failed));
  EXPECT_EQ(duplicate.error().backend(), "23505");
  EXPECT_THAT(sql("SELECT * FROM nowhere"), FailsWith(errc::schema_mismatch));
  EXPECT_THAT(sql("SELEC"), FailsWith(errc::invalid_argument));
  EXPECT_THAT(sql("SELECT pg_terminate_backend(pg_backend_pid())"),
              FailsWith(errc::unavailable));
  EXPECT_THAT(sql("SELECT 1"), IsOk()) << "on a new connection";
}

TEST_F(PostgresTransaction, AConstraintThatFailsAtCommitIsNoSuccess) {
  db_->run(
      "ALTER TABLE a ADD FOREIGN KEY (v) REFERENCES b DEFERRABLE "
      "INITIALLY DEFERRED NOT VALID");
  const auto r = store_->transaction(
      five_, [](auto& tx) { tx.exec("UPDATE a SET v = 77"); });
  EXPECT_THAT(r, FailsWith(errc::precondition_failed));
  EXPECT_EQ(v("a"), "0");
}

TEST_F(PostgresTransaction, ItIsBoundedByTheLease) {
  const auto until = boot_clock()->now() + 20s;
  const auto shown = store_->transaction(
      granted({.token = 5, .valid_until = until}),
      [](pqxx::transaction_base& tx) {
        const auto r = tx.exec(
            "SELECT extract(epoch FROM current_setting("
            "'idle_in_transaction_session_timeout')::interval)::int, "
            "extract(epoch FROM current_setting('lock_timeout')::interval)"
            "::int");
        return std::pair{r[0][0].as<int>(), r[0][1].as<int>()};
      });
  ASSERT_THAT(shown, IsOk());
  EXPECT_LE(shown->first, 20);
  EXPECT_GT(shown->first, 10);
  EXPECT_EQ(shown->second, 5);  // the store's own, which is tighter
  // And the server does end a holder that was paused within.
  const auto brief =
      granted({.token = 5, .valid_until = boot_clock()->now() + 1500ms});
  const auto paused =
      store_->transaction(brief, [&](pqxx::transaction_base& tx) {
        add(tx, "a");
        ASSERT_TRUE(eventually([&] {
          return db_->value(
                     "SELECT count(*) FROM pg_stat_activity WHERE datname = "
                     "current_database() AND state LIKE 'idle in tr%'") == "0";
        }));
      });
  EXPECT_THAT(paused, FailsWith(errc::lease_lost));
  EXPECT_THAT(store_->claim(granted({.token = 6, .owner = 'b'})), IsOk());
  EXPECT_EQ(v("a"), "0");
}

TEST_F(PostgresTransaction, ValidityIsLookedAtOnceMoreBeforeTheCommit) {
  auto time = std::make_shared<lastdoor::testing::set_clock>();
  auto store = db_->open({.time = time});
  const auto g =
      granted({.token = 5, .valid_until = time_point{std::chrono::hours{2}}});
  const auto late = store.transaction(g, [&](auto& tx) {
    add(tx, "a");
    time->set(std::chrono::hours{2});
  });
  EXPECT_THAT(late, FailsWith(errc::lease_lost));
  EXPECT_EQ(v("a"), "0");
}

TEST_F(PostgresTransaction, F08_ANumberedOneIsAppliedOnce) {
  int calls = 0;
  const auto once = [&](std::int64_t n) {
    return store_->transaction(five_,
                               [&](auto& tx) {
                                 ++calls;
                                 add(tx, "a");
                               },
                               {.sequence = n});
  };
  EXPECT_THAT(once(1), IsOk());
  EXPECT_THAT(once(1), IsOk());
  EXPECT_THAT(once(2), IsOk());
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(v("a"), "2");
  EXPECT_THAT(once(0), FailsWith(errc::invalid_argument));
  const auto valued = store_->transaction(
      five_, [&](pqxx::transaction_base&) { return 7; }, {.sequence = 2});
  EXPECT_THAT(valued, FailsWith(errc::precondition_failed));
}

// A caller's own connection and transaction.
class PostgresClaimIn : public PostgresTransaction {
 protected:
  void SetUp() override {
    PostgresTransaction::SetUp();
    if (db_) {
      theirs_.emplace(db_->url());
    }
  }
  // Every setting of the session, as text.
  [[nodiscard]] std::string settings() {
    pqxx::nontransaction tx{*theirs_};
    return tx
        .exec(
            "SELECT string_agg(name || '=' || setting, E'\\n' ORDER BY "
            "name) FROM pg_settings")[0][0]
        .as<std::string>();
  }
  std::optional<pqxx::connection> theirs_;
};

TEST_F(PostgresClaimIn, ClaimsForTheRestOfTheTransaction) {
  db_->fence("a", guard_mode::strict);
  {
    pqxx::work tx{*theirs_};
    ASSERT_THAT(postgres_store::claim_in(tx, five_), IsOk());
    add(tx, "a");
    // Nobody newer gets in before it ends.
    auto hasty = db_->open({.lock_timeout = 100ms});
    EXPECT_THAT(hasty.claim(granted({.token = 6, .owner = 'b'})),
                FailsWith(errc::unavailable));
    tx.commit();
  }
  EXPECT_EQ(v("a"), "1");
  ASSERT_THAT(store_->claim(granted({.token = 6, .owner = 'b'})), IsOk());
  pqxx::work late{*theirs_};
  const auto stale = postgres_store::claim_in(late, five_);
  ASSERT_THAT(stale, FailsWith(errc::stale_token));
  EXPECT_EQ(stale.error().seen(), 6);
}

TEST_F(PostgresClaimIn, P26_SettingsAreLeftAsTheyWereFound) {
  {
    pqxx::nontransaction tx{*theirs_};
    // The language brings settings of its own when it is first used.
    tx.exec("DO $$ BEGIN NULL; END $$");
    tx.exec("SET lock_timeout = '7s'");
    tx.exec("SET idle_in_transaction_session_timeout = '1h'");
  }
  const auto before = settings();
  const auto soon =
      granted({.token = 5, .valid_until = boot_clock()->now() + 30s});
  for (const bool commit : {true, false}) {
    pqxx::work tx{*theirs_};
    ASSERT_THAT(postgres_store::claim_in(tx, soon), IsOk());
    const auto r = tx.exec("SELECT current_setting('lock_timeout')");
    EXPECT_EQ(r[0][0].as<std::string>(), "7s") << "the tighter one stays";
    add(tx, "a");
    if (commit) {
      tx.commit();
    }
  }
  {
    pqxx::work tx{*theirs_};
    EXPECT_THAT(
        postgres_store::claim_in(tx, granted({.token = 4, .owner = 'b'})),
        FailsWith(errc::stale_token));
  }
  EXPECT_EQ(settings(), before);
  EXPECT_EQ(v("a"), "1");
}

TEST_F(PostgresClaimIn, P13_ARaceThatWasLostIsRetryable) {
  ASSERT_THAT(store_->claim(granted({.token = 5})), IsOk());
  pqxx::transaction<pqxx::isolation_level::repeatable_read> tx{*theirs_};
  tx.exec("SELECT 1 FROM a");  // the snapshot
  ASSERT_THAT(store_->claim(granted({.token = 6, .owner = 'b'})), IsOk());
  // A newer token than both: it has lost a race, and is not stale.
  const auto lost =
      postgres_store::claim_in(tx, granted({.token = 7, .owner = 'c'}));
  ASSERT_THAT(lost, FailsWith(errc::unavailable));
  EXPECT_TRUE(lost.error().retryable());
}

TEST_F(PostgresClaimIn, RefusesWhatIsNoTransaction) {
  pqxx::nontransaction tx{*theirs_};
  EXPECT_THAT(postgres_store::claim_in(tx, five_),
              FailsWith(errc::invalid_argument));
  EXPECT_TRUE(store_->read_mark(five_.resource()).value().none());
}

TEST_F(PostgresClaimIn, AGrantThatIsOverIsNotSent) {
  pqxx::work tx{*theirs_};
  EXPECT_THAT(
      postgres_store::claim_in(
          tx, granted({.token = 5, .valid_until = boot_clock()->now()})),
      FailsWith(errc::lease_lost));
}

}  // namespace
}  // namespace lastdoor::support

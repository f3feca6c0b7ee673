// Locks in a caller's own libpqxx transaction.
#include <gmock/gmock.h>
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/locks/postgres_transaction.hpp>
#include <lastdoor/migrate.hpp>
#include <lastdoor/testing/lock_contract_client.hpp>

#include <future>
#include <memory>
#include <pqxx/pqxx>
#include <set>

#include "support/temp_pgbouncer.hpp"
#include "support/temp_postgres.hpp"

namespace lastdoor::postgres {
namespace {

using namespace std::chrono_literals;
using lastdoor::testing::outcome_of;
using support::eventually;
using support::temp_database;

TEST(PostgresTransaction, TheLockEndsWithTheTransaction) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;  // no migrations needed
  pqxx::connection one{db.url()};
  pqxx::connection two{db.url()};
  auto first = std::make_unique<pqxx::work>(one);
  ASSERT_EQ(outcome_of(lock_in_transaction(*first, "r")), "ok");
  EXPECT_EQ(outcome_of(lock_in_transaction(*first, "r", if_taken::refuse)),
            "ok")
      << "re-entrant within the transaction";
  {
    pqxx::work second{two};
    EXPECT_EQ(outcome_of(lock_in_transaction(second, "r", if_taken::refuse)),
              "busy");
    EXPECT_EQ(outcome_of(lock_in_transaction(second, "s", if_taken::refuse)),
              "ok");
    EXPECT_EQ(outcome_of(lock_in_transaction(second, "")), "invalid_argument");
    second.exec("SET LOCAL lock_timeout = '100ms'");
    EXPECT_EQ(outcome_of(lock_in_transaction(second, "r")), "unavailable");
  }
  auto waiting = std::async(std::launch::async, [&] {
    pqxx::work second{two};
    return outcome_of(lock_in_transaction(second, "r"));
  });
  EXPECT_TRUE(eventually([&] {
    return db.value("SELECT count(*) FROM pg_locks WHERE NOT granted") == "1";
  }));
  first.reset();
  EXPECT_EQ(waiting.get(), "ok");
}

TEST(PostgresTransaction, P01_WorksBehindATransactionPooler) {
  LASTDOOR_NEEDS_PGBOUNCER();
  const temp_database db;
  const support::temp_pgbouncer bouncer{db.server(), {.pool_size = 2}};
  std::vector<std::future<int>> clients;
  db.query("CREATE TABLE counter (n int)");
  db.query("INSERT INTO counter VALUES (0)");
  for (int c = 0; c < 4; ++c) {
    clients.push_back(std::async(std::launch::async, [&] {
      pqxx::connection connection{bouncer.url(db.name())};
      for (int i = 0; i < 50; ++i) {
        pqxx::work tx{connection};
        lock_in_transaction(tx, "counter").value();
        // Read, then write: only the lock makes it right.
        const auto n = tx.exec("SELECT n FROM counter")[0][0].as<int>();
        tx.exec("UPDATE counter SET n = " + std::to_string(n + 1));
        tx.commit();
      }
      return 0;
    }));
  }
  for (auto& client : clients) {
    client.get();
  }
  EXPECT_EQ(db.value("SELECT n FROM counter"), "200");
  EXPECT_EQ(db.value("SELECT count(*) FROM pg_locks "
                     "WHERE locktype = 'advisory'"),
            "0");
}

TEST(PostgresTransaction, P26_TheCallersSessionStaysAsItWas) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  migrate_up(db.url()).value();
  db.query("CREATE TABLE jobs (id int PRIMARY KEY)");
  pqxx::connection connection{db.url()};
  pqxx::work tx{connection};
  const std::string settings =
      "SELECT md5(string_agg(name || '=' || setting, E'\n' ORDER BY name)) "
      "FROM pg_settings";
  const auto before = tx.exec(settings)[0][0].as<std::string>();
  ASSERT_TRUE(lock_in_transaction(tx, "r"));
  ASSERT_TRUE(claim_job(tx, {.table = "jobs"}));
  EXPECT_EQ(tx.exec(settings)[0][0].as<std::string>(), before);
  EXPECT_EQ(
      tx.exec("SELECT count(*) FROM pg_prepared_statements")[0][0].as<int>(),
      0);
}

TEST(PostgresTransaction, EachJobGoesToOneWorkerWithAHigherToken) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  migrate_up(db.url()).value();
  // Makes the counter known to this server.
  ASSERT_TRUE(open_postgres_backend(db.url()));
  db.query("CREATE SCHEMA \"q;\"");
  db.query(
      "CREATE TABLE \"q;\".\"the \"\"jobs\" "
      "(\"Id\" int PRIMARY KEY, token bigint, done bool DEFAULT false)");
  db.query("INSERT INTO \"q;\".\"the \"\"jobs\" SELECT generate_series(1, 40)");
  const job_queue queue{.table = "the \"jobs",
                        .schema = "q;",
                        .key = "Id",
                        .ready = "NOT done OR false",
                        .order_by = "\"Id\""};
  std::vector<std::future<std::vector<claimed_job>>> workers;
  for (int w = 0; w < 4; ++w) {
    workers.push_back(std::async(std::launch::async, [&] {
      std::vector<claimed_job> mine;
      pqxx::connection connection{db.url()};
      for (;;) {
        pqxx::work tx{connection};
        const auto job = claim_job(tx, queue).value();
        if (!job) {
          return mine;
        }
        tx.exec("UPDATE \"q;\".\"the \"\"jobs\" SET done = true, token = " +
                job->token.to_string() + " WHERE \"Id\" = " + job->key);
        tx.commit();
        mine.push_back(*job);
      }
    }));
  }
  std::set<std::string> keys;
  std::set<std::int64_t> tokens;
  for (auto& worker : workers) {
    for (const auto& job : worker.get()) {
      EXPECT_TRUE(keys.insert(job.key).second) << job.key;
      EXPECT_TRUE(tokens.insert(job.token.value()).second);
    }
  }
  EXPECT_EQ(keys.size(), 40U);
}

TEST(PostgresTransaction, AJobThatIsTakenIsSkippedOrRefused) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  migrate_up(db.url()).value();
  db.query("CREATE TABLE jobs (id int PRIMARY KEY)");
  db.query("INSERT INTO jobs VALUES (1)");
  pqxx::connection one{db.url()};
  pqxx::connection two{db.url()};
  {
    pqxx::work tx{one};
    EXPECT_EQ(outcome_of(claim_job(tx, {.table = "jobs"})), "token_regressed")
        << "no lock service was ever opened here";
  }
  ASSERT_TRUE(open_postgres_backend(db.url()));
  auto first = std::make_unique<pqxx::work>(one);
  const auto taken = claim_job(*first, {.table = "jobs"}).value();
  ASSERT_TRUE(taken);
  {
    pqxx::work second{two};
    EXPECT_FALSE(claim_job(second, {.table = "jobs"}).value());
    EXPECT_EQ(
        outcome_of(claim_job(second, {.table = "jobs"}, if_row_locked::refuse)),
        "busy");
  }
  first.reset();  // rolled back: the next worker has a higher token
  pqxx::work second{two};
  const auto again = claim_job(second, {.table = "jobs"}).value();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->key, taken->key);
  EXPECT_GT(again->token, taken->token);
}

}  // namespace
}  // namespace lastdoor::postgres

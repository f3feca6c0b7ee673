// Waiters are woken by a release, and nobody else is bothered.
#include <gmock/gmock.h>
#include <libpq-fe.h>
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/migrate.hpp>
#include <lastdoor/testing/lock_contract_client.hpp>

#include <csignal>
#include <future>

#include "locks/postgres_wakeups.hpp"
#include "support/signals.hpp"
#include "support/temp_pgbouncer.hpp"
#include "support/temp_postgres.hpp"

namespace lastdoor {
namespace {

using namespace std::chrono_literals;
using support::eventually;
using support::sql_session;
using support::temp_database;
using testing::outcome_of;

struct migrated_database : temp_database {
  migrated_database() { postgres::migrate_up(url()).value(); }
};

lock_service open(const std::string& url, bool notify = true) {
  return open_postgres_locks(url, {.call_timeout = 30s, .notify = notify})
      .value();
}

// Polls so rarely that only a wake-up explains a grant.
acquire_options waiting() {
  return {
      .ttl = 10min, .wait_at_most = 10min, .backoff = {.first = 1h, .cap = 1h}};
}

bool somebody_is_announced(const temp_database& db) {
  return db.value(
             "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
             "AND mode = 'ShareLock'") != "0";
}

TEST(PostgresWakeups, AReleaseWakesTheWaiter) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto holders = open(db.url());
  auto waiters = open(db.url());
  auto held = holders.acquire("r", {.ttl = 10min}).value();
  auto other = holders.acquire("other", {.ttl = 10min}).value();
  auto waiter = std::async(std::launch::async, [&] {
    return outcome_of(waiters.acquire("r", waiting()));
  });
  ASSERT_TRUE(eventually([&] { return somebody_is_announced(db); }));
  held.release().value();
  ASSERT_EQ(waiter.wait_for(60s), std::future_status::ready);
  EXPECT_EQ(waiter.get(), "ok");
  EXPECT_TRUE(eventually([&] { return !somebody_is_announced(db); }))
      << "no longer announced once it does not wait";
}

TEST(PostgresWakeups, NobodyIsToldOfAReleaseThatNobodyWaitsFor) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto locks = open(db.url());
  sql_session listener{db.url()};
  listener.query("LISTEN lastdoor");
  const auto heard = [&] {
    listener.query("SELECT 1");
    int count = 0;
    while (auto* note = PQnotifies(listener.raw())) {
      PQfreemem(note);
      ++count;
    }
    return count;
  };
  locks.acquire("r", {.ttl = 10min}).value().release().value();
  EXPECT_EQ(heard(), 0);
  // Announced as a waiter is, for another name, then for this one.
  sql_session waiter{db.url()};
  const auto announce = [&](const std::string& name) {
    waiter.query(
        "SELECT pg_advisory_lock_shared(hashtextextended("
        "'lastdoor/wait/default/" +
        name + "', 0))");
  };
  announce("another");
  locks.acquire("r", {.ttl = 10min}).value().release().value();
  EXPECT_EQ(heard(), 0);
  announce("r");
  locks.acquire("r", {.ttl = 10min}).value().release().value();
  EXPECT_TRUE(eventually([&] { return heard() == 1; }));
}

TEST(PostgresWakeups, SurviveTheLossOfTheirConnection) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto holders = open(db.url());
  auto waiters = open(db.url());
  auto held = holders.acquire("r", {.ttl = 10min}).value();
  auto waiter = std::async(std::launch::async, [&] {
    return outcome_of(waiters.acquire("r", waiting()));
  });
  ASSERT_TRUE(eventually([&] { return somebody_is_announced(db); }));
  const char* listening =
      "SELECT pid FROM pg_locks WHERE locktype = 'advisory' "
      "AND mode = 'ShareLock'";
  const auto pid = db.value(listening);
  db.query("SELECT pg_terminate_backend(" + pid + ", 30000)");
  ASSERT_TRUE(eventually([&] {
    const auto now = db.query(listening);
    return now.size() == 1 && now[0][0] != pid;
  }));
  held.release().value();
  ASSERT_EQ(waiter.wait_for(60s), std::future_status::ready);
  EXPECT_EQ(waiter.get(), "ok");
}

// A release between somebody's last look and this moment was told already.
TEST(PostgresWakeups, WhoComesWhileOthersListenLooksOnceMore) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  postgres_wakeups wakeups{
      postgres_driver::parse_endpoint(db.url()).value(), {}, "default", 30s};
  const auto rings_within = [](alarm& bell, duration limit) {
    return bell.wait_until(boot_clock()->now() + limit);
  };
  auto first = boot_clock()->make_alarm();
  auto late = boot_clock()->make_alarm();
  const auto watching = wakeups.watch("r", *first);
  ASSERT_TRUE(rings_within(*first, 60s)) << "when listening has begun";
  const auto too = wakeups.watch("r", *late);
  EXPECT_TRUE(rings_within(*late, 60s));
  EXPECT_FALSE(rings_within(*first, 50ms));
}

TEST(PostgresWakeups, TheirThreadTakesNoSignals) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  postgres_wakeups wakeups{
      postgres_driver::parse_endpoint(db.url()).value(), {}, "default", 30s};
  auto bell = boot_clock()->make_alarm();
  const auto before = support::threads_that_take(SIGTERM);
  const auto watching = wakeups.watch("r", *bell);
  ASSERT_TRUE(bell->wait_until(boot_clock()->now() + 60s)) << "it is at work";
  EXPECT_EQ(support::threads_that_take(SIGTERM), before);
}

TEST(PostgresWakeups, BehindAPoolerWaitersPoll) {
  LASTDOOR_NEEDS_PGBOUNCER();
  const migrated_database db;
  const support::temp_pgbouncer bouncer{db.server(), {.pool_size = 4}};
  auto locks = open(bouncer.url(db.name()));
  auto others = open(bouncer.url(db.name()));
  auto held = locks.acquire("r", {.ttl = 10min}).value();
  auto waiter = std::async(std::launch::async, [&] {
    return outcome_of(
        others.acquire("r", {.ttl = 10min, .wait_at_most = 10min}));
  });
  held.release().value();
  ASSERT_EQ(waiter.wait_for(60s), std::future_status::ready);
  EXPECT_EQ(waiter.get(), "ok");
  EXPECT_EQ(db.value("SELECT count(*) FROM pg_locks "
                     "WHERE locktype = 'advisory'"),
            "0");
}

}  // namespace
}  // namespace lastdoor

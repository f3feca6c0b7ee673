// G8 on a real server: crashes, failovers, restored and reset counters.
#include <gmock/gmock.h>
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/migrate.hpp>
#include <lastdoor/testing/lock_contract_client.hpp>

#include <cstdlib>
#include <random>
#include <set>

#include "support/temp_postgres.hpp"

namespace lastdoor {
namespace {

using namespace std::chrono_literals;
using support::sql_session;
using support::temp_database;
using support::temp_postgres;
using testing::contender;
using testing::outcome_of;

constexpr duration patient = 30s;

contender connect(const temp_database& db) {
  return contender{
      open_postgres_backend(db.url(), {.call_timeout = patient}).value()};
}

std::int64_t token_of(contender& c, std::string_view resource) {
  auto g = c.acquire(resource, 10s);
  if (!g) {
    ADD_FAILURE() << g.error().message();
    return 0;
  }
  EXPECT_EQ(outcome_of(c.release(*g)), "ok");
  return g->token().value();
}

// A crash loses what was not written to the log. A token must have been. 200
// crashes when LASTDOOR_TEST_LONG is set.
TEST(PostgresTokens, P10_NoTokenRepeatsWhenTheServerIsKilled) {
  LASTDOOR_NEEDS_POSTGRES();
  temp_postgres server{
      {.settings = {"synchronous_commit=off", "wal_writer_delay=10s"}}};
  const temp_database db{server};
  postgres::migrate_up(db.url()).value();
  // Not asynchronously: what the test itself needs to survive.
  sql_session{db.url()}.query("CHECKPOINT");
  std::mt19937_64 random{testing::test_seed()};
  std::set<std::int64_t> seen;
  std::int64_t last = 0;
  const int rounds = std::getenv("LASTDOOR_TEST_LONG") == nullptr ? 20 : 200;
  for (int round = 0; round < rounds; ++round) {
    {
      auto a = connect(db);
      const auto grants = 1 + random() % 5;
      for (unsigned i = 0; i < grants; ++i) {
        // Each another resource: a crash may bring a lease back.
        const auto name = std::to_string(round) + '.' + std::to_string(i);
        auto g = a.acquire(name, 60s);
        ASSERT_EQ(outcome_of(g), "ok");
        EXPECT_TRUE(seen.insert(g->token().value()).second)
            << "token " << g->token().value() << " in round " << round;
        EXPECT_GT(g->token().value(), last);
        last = g->token().value();
      }
      server.kill_hard();
    }
    server.start();
  }
  EXPECT_GE(seen.size(), 20U);
}

TEST(PostgresTokens, P11_ACounterThatWasSetBackIsRaised) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  postgres::migrate_up(db.url()).value();
  auto a = connect(db);
  auto idle = connect(db);  // has granted nothing, so remembers nothing
  std::set<std::int64_t> seen;
  std::int64_t last = 0;
  const auto next = [&](std::string_view resource, contender& service) {
    const auto token = token_of(service, resource);
    EXPECT_TRUE(seen.insert(token).second) << token;
    EXPECT_GT(token, last) << resource;
    last = token;
  };
  next("old", a);
  next("older", a);
  // Noticed at the row.
  db.query("SELECT setval('lastdoor.token', 1, false)");
  next("old", idle);
  next("older", a);
  // No row knows better, but this service does.
  db.query("SELECT setval('lastdoor.token', 1, false)");
  next("never seen before", a);
  // Nor does a service that is opened now; the rows do.
  db.query("SELECT setval('lastdoor.token', 1, false)");
  auto b = connect(db);
  EXPECT_GT(token_of(b, "new for everybody"), last);
}

TEST(PostgresTokens, P11_EmptyingTheLeasesIsRefusedAndForgetsNothing) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  postgres::migrate_up(db.url()).value();
  auto a = connect(db);
  const auto first = token_of(a, "r");
  EXPECT_THROW(db.query("TRUNCATE lastdoor.leases RESTART IDENTITY"),
               std::runtime_error);
  db.query("DELETE FROM lastdoor.leases");
  EXPECT_GT(token_of(a, "r"), first);
}

TEST(PostgresTokens, G8_ANewTimelineRaisesTheCounter) {
  LASTDOOR_NEEDS_POSTGRES();
  temp_postgres server;
  const temp_database db{server};
  postgres::migrate_up(db.url()).value();
  auto a = connect(db);
  const auto before = token_of(a, "r");
  const auto clock_us = [&] {
    return std::stoll(
        db.value("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)"
                 "::bigint"));
  };
  server.restart();
  EXPECT_EQ(token_of(a, "r"), before + 1) << "a restart forgets nothing";
  // What a lagging replica or an old backup would not know of.
  const auto at_most = clock_us();
  server.restart_on_new_timeline();
  EXPECT_GE(token_of(a, "r"), at_most);
  EXPECT_LT(before + 1, at_most);
}

// A pooler may put another server behind a connection, so the connection's
// first look is not enough.
TEST(PostgresTokens, G8_TheTimelineIsPartOfTheGrantingStatement) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  postgres::migrate_up(db.url()).value();
  auto a = connect(db);
  const auto before = token_of(a, "r");
  const auto pid = db.value(
      "SELECT pid FROM pg_stat_activity WHERE application_name = 'lastdoor' "
      "AND datname = current_database()");
  const auto at_most =
      std::stoll(db.value("SELECT (extract(epoch FROM clock_timestamp()) "
                          "* 1000000)::bigint"));
  ASSERT_LT(before, at_most);
  db.query("UPDATE lastdoor.token_source SET timeline = '0000FFFF'");
  EXPECT_GE(token_of(a, "r"), at_most);
  EXPECT_EQ(db.value("SELECT pid FROM pg_stat_activity WHERE "
                     "application_name = 'lastdoor' "
                     "AND datname = current_database()"),
            pid)
      << "over the very same connection";
  // Another system with the same timeline: a dump that was loaded elsewhere.
  db.query("UPDATE lastdoor.token_source SET system = 'another'");
  const auto then =
      std::stoll(db.value("SELECT (extract(epoch FROM clock_timestamp()) "
                          "* 1000000)::bigint"));
  auto b = connect(db);
  EXPECT_GE(token_of(b, "r"), then);
}

TEST(PostgresTokens, RaisingWhileOthersDrawNeverGivesATokenTwice) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  postgres::migrate_up(db.url()).value();
  std::mutex guard;
  std::set<std::int64_t> seen;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto self = connect(db);
      for (int i = 0; i < 50; ++i) {
        auto g = self.acquire("r" + std::to_string(t), 10s);
        ASSERT_EQ(outcome_of(g), "ok") << g.error().message();
        self.release(*g).ignore();
        const std::lock_guard lock{guard};
        EXPECT_TRUE(seen.insert(g->token().value()).second);
      }
    });
  }
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      auto self = connect(db);
      for (int i = 0; i < 50; ++i) {
        std::int64_t highest = 0;
        {
          const std::lock_guard lock{guard};
          highest = seen.empty() ? 1 : *seen.rbegin();
        }
        // Just ahead of the counter, where a race would show.
        const auto floor = fencing_token::from(highest + 2).value();
        EXPECT_EQ(outcome_of(self.backend().raise_floor(mark{floor})), "ok");
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(seen.size(), 200U);
}

}  // namespace
}  // namespace lastdoor

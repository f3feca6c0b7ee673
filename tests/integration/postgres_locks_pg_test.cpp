// Leases on a real server: its clock, its poolers, its crashes.
#include <gmock/gmock.h>
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/migrate.hpp>
#include <lastdoor/testing/lock_contract_client.hpp>

#include <future>
#include <set>

#include "support/tcp_proxy.hpp"
#include "support/temp_pgbouncer.hpp"
#include "support/temp_postgres.hpp"

namespace lastdoor {
namespace {

using namespace std::chrono_literals;
using support::eventually;
using support::sql_session;
using support::temp_database;
using support::temp_pgbouncer;
using support::temp_postgres;
using testing::contender;
using testing::outcome_of;

// Generous, so that a busy machine does not end a call: these tests are about
// what is answered, not how soon.
constexpr duration patient = 30s;

struct migrated_database : temp_database {
  migrated_database() : migrated_database{temp_postgres::shared()} {}
  explicit migrated_database(temp_postgres& server) : temp_database{server} {
    postgres::migrate_up(url()).value();
  }
};

contender connect(const std::string& url,
                  postgres_locks_options options = {.call_timeout = patient}) {
  return contender{open_postgres_backend(url, options).value()};
}

const char* remaining_s =
    "SELECT extract(epoch FROM expires_at - clock_timestamp()) "
    "FROM lastdoor.leases";

TEST(PostgresLocks, ALeaseLeavesItsRowBehind) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto a = connect(db.url());
  for (int i = 0; i < 3; ++i) {
    auto g = a.acquire("r", 10s);
    ASSERT_EQ(outcome_of(g), "ok");
    EXPECT_EQ(db.value("SELECT token FROM lastdoor.leases"),
              g->token().to_string());
    ASSERT_EQ(outcome_of(a.release(*g)), "ok");
    EXPECT_EQ(db.value("SELECT token FROM lastdoor.leases"),
              g->token().to_string());
    EXPECT_EQ(outcome_of(a.release(*g)), "ok") << "recognised";
  }
}

TEST(PostgresLocks, AMissWritesNothing) {
  LASTDOOR_NEEDS_POSTGRES();
  temp_postgres server;
  const migrated_database db{server};
  auto a = connect(db.url());
  auto b = connect(db.url());
  ASSERT_EQ(outcome_of(a.acquire("r", 10min)), "ok");
  ASSERT_EQ(outcome_of(b.acquire("r", 10s)), "busy");
  const char* next_xid = "SELECT pg_snapshot_xmax(pg_current_snapshot())";
  const auto before = db.value(next_xid);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(outcome_of(b.acquire("r", 10s)), "busy");
  }
  EXPECT_EQ(db.value(next_xid), before);
}

TEST(PostgresLocks, P01_ATransactionPoolerStrandsNothing) {
  LASTDOOR_NEEDS_PGBOUNCER();
  const migrated_database db;
  const temp_pgbouncer bouncer{db.server(), {.pool_size = 2}};
  std::vector<std::future<int>> clients;
  for (int c = 0; c < 4; ++c) {
    clients.push_back(std::async(std::launch::async, [&] {
      auto self = connect(bouncer.url(db.name()));
      int granted = 0;
      while (granted < 200) {
        auto g = self.acquire("r", 10min);  // a stranded one would block
        if (g) {
          ++granted;
          EXPECT_EQ(outcome_of(self.release(*g)), "ok");
        } else {
          EXPECT_EQ(outcome_of(g), "busy") << g.error().message();
        }
      }
      return granted;
    }));
  }
  for (auto& client : clients) {
    EXPECT_EQ(client.get(), 200);
  }
  EXPECT_EQ(db.value("SELECT count(*) FROM pg_locks "
                     "WHERE locktype = 'advisory'"),
            "0");
  EXPECT_EQ(db.value("SELECT expires_at FROM lastdoor.leases"), "-infinity");
}

TEST(PostgresLocks, P26_ThePoolersSessionsStayAsTheyWere) {
  LASTDOOR_NEEDS_PGBOUNCER();
  const migrated_database db;
  const temp_pgbouncer bouncer{db.server(), {.pool_size = 1}};
  // Of what a session was told; PgBouncer itself tells it who the client is.
  const char* settings =
      "SELECT coalesce(string_agg(name || '=' || setting, ' '), '') "
      "FROM pg_settings WHERE source = 'session' "
      "AND name NOT IN ('application_name', 'client_encoding', 'DateStyle', "
      "'TimeZone', 'standard_conforming_strings')";
  sql_session other{bouncer.url(db.name())};
  const auto before = other.value(settings);
  auto a = connect(bouncer.url(db.name()));
  auto g = a.acquire("r", 10s);
  ASSERT_EQ(outcome_of(g), "ok");
  EXPECT_EQ(other.value(settings), before);
  EXPECT_EQ(outcome_of(a.renew(*g, 10s)), "ok");
  EXPECT_EQ(outcome_of(a.release(*g)), "ok");
  (void)a.inspect("r");
  EXPECT_EQ(other.value(settings), before);
  EXPECT_EQ(other.value("SELECT count(*) FROM pg_prepared_statements"), "0");
}

TEST(PostgresLocks, P03_ALateAnswerLeavesNoLease) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  support::tcp_proxy between{db.server().port()};
  auto locks = open_postgres_locks(
                   db.tcp_url(between.port()),
                   {.call_timeout = 500ms, .connections = 1, .notify = false})
                   .value();
  {
    auto warm = locks.acquire("r", {.ttl = 10min});
    ASSERT_TRUE(warm) << warm.error().message();
    warm->release().value();
  }
  between.hold_replies(true);
  const auto late = locks.acquire("r", {.ttl = 10min});
  ASSERT_FALSE(late);
  // The server has granted it, and so far nobody here knows.
  ASSERT_EQ(db.value("SELECT expires_at > clock_timestamp() "
                     "FROM lastdoor.leases"),
            "t");
  between.hold_replies(false);
  EXPECT_TRUE(eventually([&] {
    return db.value(
               "SELECT expires_at <= clock_timestamp() "
               "FROM lastdoor.leases") == "t";
  }));
  EXPECT_TRUE(eventually([&] {
    return db.value(
               "SELECT count(*) FROM pg_stat_activity WHERE "
               "application_name = 'lastdoor' AND state = 'active' AND "
               "datname = current_database()") == "0";
  }));
}

TEST(PostgresLocks, P07_TheTtlBeginsWhenTheRowIsWon) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto b = connect(db.url());
  ASSERT_EQ(outcome_of(b.release(b.acquire("r", 10s).value())), "ok");
  for (const bool updated : {false, true}) {
    sql_session first{db.url()};
    first.query("BEGIN");
    first.query(updated ? "UPDATE lastdoor.leases SET holder = 'x'"
                        : "SELECT FROM lastdoor.leases FOR UPDATE");
    auto waiting =
        std::async(std::launch::async, [&] { return b.acquire("r", 60s); });
    ASSERT_TRUE(eventually([&] {
      return db.value(
                 "SELECT count(*) FROM pg_stat_activity WHERE "
                 "wait_event_type = 'Lock' AND "
                 "datname = current_database()") == "1";
    }));
    first.query("SELECT pg_sleep(4)");
    first.query("COMMIT");
    auto g = waiting.get();
    ASSERT_EQ(outcome_of(g), "ok");
    // Four seconds less if the TTL began when the wait did.
    EXPECT_GT(std::stod(db.value(remaining_s)), 57.0) << updated;
    // The holder counts from before it asked.
    EXPECT_LT(g->valid_until() - boot_clock()->now(), 57s);
    ASSERT_EQ(outcome_of(b.release(*g)), "ok");
  }
}

TEST(PostgresLocks, P08_NoTimeZoneChangesTheVerdict) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto holder = connect(db.url());
  auto g = holder.acquire("r", 10min);
  ASSERT_EQ(outcome_of(g), "ok");
  for (const char* zone : {"+05:30", "-04:00", "UTC"}) {
    db.query(std::string{"ALTER DATABASE "} + db.name() + " SET timezone = '" +
             zone + "'");
    auto other = connect(db.url());
    auto refused = other.acquire("r", 1s);
    ASSERT_EQ(outcome_of(refused), "busy") << zone;
    EXPECT_GT(refused.error().retry_after_ms(), 500'000) << zone;
    EXPECT_LE(refused.error().retry_after_ms(), 600'000) << zone;
  }
}

// A client whose clock is ahead, or behind.
class skewed_clock final : public clock {
 public:
  explicit skewed_clock(duration ahead) : ahead_{ahead} {}
  [[nodiscard]] time_point now() const noexcept override {
    return boot_clock()->now() + ahead_;
  }
  [[nodiscard]] std::unique_ptr<alarm> make_alarm() override {
    return boot_clock()->make_alarm();
  }

 private:
  duration ahead_;
};

TEST(PostgresLocks, P08_NoClientsClockChangesTheVerdict) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto holder = connect(db.url());
  ASSERT_EQ(outcome_of(holder.acquire("r", 10min)), "ok");
  for (const duration ahead : {duration{20min}, duration{-20min}}) {
    postgres_locks_options options;
    options.call_timeout = patient;
    options.service.time = std::make_shared<skewed_clock>(ahead);
    auto locks = open_postgres_locks(db.url(), options).value();
    const auto refused = locks.acquire("r", {.ttl = 10min});
    ASSERT_EQ(outcome_of(refused), "busy");
    EXPECT_GT(refused.error().retry_after_ms(), 500'000);
    EXPECT_LE(refused.error().retry_after_ms(), 600'000);
    // What it is granted itself lasts as long for everybody.
    const std::string own = ahead > duration{} ? "fast" : "slow";
    auto lease = locks.acquire(own, {.ttl = 10min, .renew = false});
    ASSERT_EQ(outcome_of(lease), "ok");
    const auto next = holder.acquire(own, 1s);
    ASSERT_EQ(outcome_of(next), "busy");
    EXPECT_GT(next.error().retry_after_ms(), 500'000);
    EXPECT_LE(next.error().retry_after_ms(), 600'000);
  }
}

TEST(PostgresLocks, P27_TokensAreWiderThan32Bits) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto a = connect(db.url());
  const auto wide = fencing_token::from(std::int64_t{1} << 52).value();
  ASSERT_EQ(outcome_of(a.backend().raise_floor(mark{wide})), "ok");
  auto g = a.acquire("r", 10s);
  ASSERT_EQ(outcome_of(g), "ok");
  EXPECT_EQ(g->token().value(), wide.value() + 1);
}

TEST(PostgresLocks, C08_NamesAreNeverSql) {
  LASTDOOR_NEEDS_POSTGRES();
  temp_postgres& server = temp_postgres::shared();
  const std::string name = "\"a 'b\"\"; DROP\"";
  sql_session admin{server.url("postgres")};
  admin.query("CREATE DATABASE " + name);
  const std::string url = "dbname='a \\'b\"; DROP' user=postgres host=" +
                          server.socket_folder().string() +
                          " port=" + std::to_string(server.port());
  postgres::migrate_up(url).value();
  {
    auto a = connect(url, {.name_space = "it's;\"x\"", .call_timeout = 30s});
    auto g = a.acquire("'; DROP TABLE lastdoor.leases; --", 10s);
    ASSERT_EQ(outcome_of(g), "ok");
    EXPECT_EQ(outcome_of(a.release(*g)), "ok");
    auto other = connect(url);
    ASSERT_EQ(outcome_of(other.acquire("r", 10s)), "ok");
  }
  EXPECT_EQ(sql_session{url}.value("SELECT count(*) FROM lastdoor.leases"),
            "2");
  admin.query("DROP DATABASE " + name + " WITH (FORCE)");
}

TEST(PostgresLocks, R37_EachCauseHasItsCode) {
  LASTDOOR_NEEDS_POSTGRES();
  temp_postgres server;
  const migrated_database db{server};
  const temp_database bare{server};
  EXPECT_EQ(outcome_of(open_postgres_backend("s3cret")), "invalid_argument");
  EXPECT_EQ(outcome_of(open_postgres_backend(bare.url())), "schema_mismatch");
  EXPECT_EQ(outcome_of(open_postgres_backend(server.url("absent"))),
            "misconfigured");
  {
    sql_session admin{db.url()};
    admin.query("CREATE ROLE stranger LOGIN");
    std::string url = db.url();
    url.replace(url.find("user=postgres"), 13, "user=stranger");
    EXPECT_EQ(outcome_of(open_postgres_backend(url)), "misconfigured");
    admin.query("ALTER SEQUENCE lastdoor.token CACHE 10");
    EXPECT_EQ(outcome_of(open_postgres_backend(db.url())), "misconfigured");
    admin.query("ALTER SEQUENCE lastdoor.token CACHE 1");
  }
  auto a = connect(db.url());
  auto g = a.acquire("r", 10min);
  ASSERT_EQ(outcome_of(g), "ok");
  EXPECT_EQ(outcome_of(a.acquire("r", 1s)), "busy");
  EXPECT_EQ(outcome_of(a.acquire("s", 48h)), "invalid_argument");
  server.stop();
  EXPECT_EQ(outcome_of(a.acquire("s", 10s)), "unavailable");
  EXPECT_EQ(outcome_of(a.renew(*g, 10min)), "unavailable");
  EXPECT_EQ(outcome_of(open_postgres_backend(db.url())), "unavailable");
  server.start();
  EXPECT_EQ(outcome_of(a.renew(*g, 10min)), "ok") << "over a new connection";
  sql_session{db.url()}.query("TRUNCATE lastdoor.migrations");
  EXPECT_EQ(outcome_of(open_postgres_backend(db.url())), "schema_mismatch");
}

TEST(PostgresLocks, AStandbyGrantsNothing) {
  LASTDOOR_NEEDS_POSTGRES();
  temp_postgres server;
  const migrated_database db{server};
  auto a = connect(db.url());
  ASSERT_EQ(outcome_of(a.acquire("r", 1s)), "ok");
  server.stop();
  const auto signal = server.data() / "standby.signal";
  std::fclose(std::fopen(signal.c_str(), "w"));
  support::give_to_server(signal);
  server.start();
  EXPECT_EQ(outcome_of(a.acquire("s", 10s)), "unavailable");
  EXPECT_EQ(outcome_of(open_postgres_backend(db.url())), "unavailable");
}

TEST(PostgresLocks, AnApplicationsRoleNeedsOnlyTheRightsThatAreListed) {
  LASTDOOR_NEEDS_POSTGRES();
  temp_postgres server;
  const migrated_database db{server};
  db.query(
      "CREATE ROLE application LOGIN;"
      "GRANT USAGE ON SCHEMA lastdoor TO application;"
      "GRANT SELECT, INSERT, UPDATE ON lastdoor.leases TO application;"
      "GRANT SELECT ON lastdoor.token_source, lastdoor.migrations"
      " TO application;"
      "GRANT USAGE, SELECT ON SEQUENCE lastdoor.token TO application");
  std::string url = db.url();
  url.replace(url.find("user=postgres"), 13, "user=application");
  auto a = connect(url);
  auto g = a.acquire("r", 10s);
  ASSERT_EQ(outcome_of(g), "ok") << g.error().message();
  EXPECT_EQ(outcome_of(a.renew(*g, 20s)), "ok");
  EXPECT_EQ(outcome_of(a.release(*g)), "ok");
  EXPECT_EQ(outcome_of(a.backend().raise_floor(mark{g->token()})), "ok");
  sql_session s{url};
  EXPECT_THROW(s.query("SELECT setval('lastdoor.token', 1)"),
               std::runtime_error);
  EXPECT_THROW(s.query("DELETE FROM lastdoor.leases"), std::runtime_error);
}

TEST(PostgresLocks, AChildUsesNothingOfItsParent) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto a = connect(db.url());
  auto g = a.acquire("r", 10min);
  ASSERT_EQ(outcome_of(g), "ok");
  testing::child_process<int> child{[&](const auto& report) {
    report(outcome_of(a.release(*g)) == "misconfigured" ? 1 : 0);
    return 0;
  }};
  EXPECT_EQ(child.next(), 1);
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(outcome_of(a.renew(*g, 10min)), "ok");
}

}  // namespace
}  // namespace lastdoor

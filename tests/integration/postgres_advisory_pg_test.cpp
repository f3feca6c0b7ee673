// Advisory locks on a real server: one session for each lock, and nothing
// left when a session ends.
#include <gmock/gmock.h>
#include <lastdoor/lastdoor.hpp>
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/migrate.hpp>
#include <lastdoor/stores/postgres.hpp>
#include <lastdoor/testing/lock_contract_client.hpp>

#include <future>

#include "support/tcp_proxy.hpp"
#include "support/temp_pgbouncer.hpp"
#include "support/temp_postgres.hpp"

namespace lastdoor {
namespace {

using namespace std::chrono_literals;
using support::eventually;
using support::sql_session;
using support::temp_database;
using testing::contender;
using testing::outcome_of;

struct migrated_database : temp_database {
  migrated_database() { postgres::migrate_up(url()).value(); }
};

contender connect(const std::string& url,
                  postgres_locks_options options = {.call_timeout = 30s}) {
  return contender{open_postgres_advisory_backend(url, options).value()};
}

std::string advisory_rows(const temp_database& db) {
  return db.value(
      "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND "
      "database = (SELECT oid FROM pg_database "
      "WHERE datname = current_database())");
}

// The session that holds a lock.
std::string session_of(const temp_database& db) {
  return db.value("SELECT pid FROM pg_locks WHERE locktype = 'advisory'");
}

TEST(PostgresAdvisory, GrantsRenewsAndReleases) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto a = connect(db.url());
  auto b = connect(db.url());
  EXPECT_EQ(a.backend().source().str(), "postgres-advisory/default");
  std::int64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    auto& mine = i % 2 == 0 ? a : b;
    auto& theirs = i % 2 == 0 ? b : a;
    auto g = mine.acquire("r", 10min);
    ASSERT_EQ(outcome_of(g), "ok") << g.error().message();
    EXPECT_GT(g->token().value(), last);
    last = g->token().value();
    auto refused = theirs.acquire("r", 10min);
    ASSERT_EQ(outcome_of(refused), "busy");
    EXPECT_GT(refused.error().retry_after_ms(), 0);
    EXPECT_EQ(outcome_of(theirs.release(*g)), "not_owner");
    EXPECT_EQ(outcome_of(mine.renew(*g, 10min)), "ok");
    EXPECT_TRUE(mine.inspect("r").held);
    EXPECT_EQ(outcome_of(mine.release(*g)), "ok");
    EXPECT_EQ(outcome_of(mine.release(*g)), "ok") << "recognised";
    EXPECT_EQ(outcome_of(mine.renew(*g, 10min)), "not_owner");
    EXPECT_FALSE(mine.inspect("r").held);
    EXPECT_EQ(advisory_rows(db), "0");
  }
  auto lease = contender{open_postgres_backend(db.url()).value()};
  ASSERT_EQ(outcome_of(a.acquire("r", 10min)), "ok");
  EXPECT_EQ(outcome_of(lease.acquire("r", 10min)), "ok")
      << "two services, which do not exclude each other";
}

TEST(PostgresAdvisory, P01_IsRefusedBehindATransactionPooler) {
  LASTDOOR_NEEDS_PGBOUNCER();
  const migrated_database db;
  const support::temp_pgbouncer bouncer{db.server()};
  const auto refused = open_postgres_advisory_backend(bouncer.url(db.name()));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), errc::misconfigured);
  EXPECT_EQ(advisory_rows(db), "0");
}

TEST(PostgresAdvisory, P02_OneProcessIsNotGrantedALockTwice) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto a = connect(db.url());
  auto g = a.acquire("r", 10min);
  ASSERT_EQ(outcome_of(g), "ok");
  auto again = std::async(std::launch::async,
                          [&] { return outcome_of(a.acquire("r", 10min)); });
  EXPECT_EQ(again.get(), "busy");
  ASSERT_EQ(outcome_of(a.release(*g)), "ok");
  EXPECT_EQ(advisory_rows(db), "0");
  // All connections are in use: nothing is granted on one of them.
  auto one = connect(db.url(), {.call_timeout = 30s, .connections = 1});
  ASSERT_EQ(outcome_of(one.acquire("x", 10min)), "ok");
  const auto name = resource_name::parse("x").value();
  const auto owner = owner_id::generate().value();
  EXPECT_EQ(outcome_of(one.backend().try_acquire(
                {name, owner, 10min, "x", boot_clock()->now() + 300ms})),
            "unavailable");
  EXPECT_EQ(advisory_rows(db), "1");
}

TEST(PostgresAdvisory, P03_ALateAnswerLeavesNoLock) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  support::tcp_proxy between{db.server().port()};
  auto locks =
      open_postgres_advisory_locks(db.tcp_url(between.port()),
                                   {.call_timeout = 500ms, .notify = false})
          .value();
  {
    auto warm = locks.acquire("r", {.ttl = 10min});
    ASSERT_TRUE(warm) << warm.error().message();
    warm->release().value();
  }
  between.hold_replies(true);
  EXPECT_FALSE(locks.acquire("r", {.ttl = 10min}));
  EXPECT_TRUE(eventually([&] { return advisory_rows(db) == "0"; }));
  between.hold_replies(false);
  auto direct = connect(db.url());
  EXPECT_EQ(outcome_of(direct.acquire("r", 10min)), "ok");
}

TEST(PostgresAdvisory, P04_TheHolderNoticesThatItsSessionDied) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto a = open_postgres_advisory_locks(db.url(), {.call_timeout = 2s}).value();
  auto b = connect(db.url());
  auto lease = a.acquire("r", {.ttl = 6s, .renew_every = 500ms}).value();
  db.query("SELECT pg_terminate_backend(" + session_of(db) + ", 30000)");
  auto next = b.acquire("r", 10min);
  ASSERT_EQ(outcome_of(next), "ok");
  EXPECT_GT(next->token(), lease.token());
  EXPECT_TRUE(eventually([&] { return lease.lost().stop_requested(); }));
  EXPECT_EQ(lease.why_lost(), loss_reason::refused);
  EXPECT_EQ(outcome_of(b.renew(*next, 10min)), "ok");
}

// The same for a holder that never looks: the store does.
TEST(PostgresAdvisory, P04_AHolderThatNoticesNothingIsRefusedAtTheStore) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  db.query("CREATE TABLE stock (sku text PRIMARY KEY, qty integer)");
  db.query("INSERT INTO stock VALUES ('a', 10)");
  postgres::add_fence(db.url(), {.table = "stock"}).value();
  auto store = open_postgres_store(db.url()).value();
  gateway ours{open_postgres_advisory_locks(db.url()).value(), store};
  gateway theirs{open_postgres_advisory_locks(db.url()).value(), store};
  auto first = ours.acquire("r", {.ttl = 10min, .renew = false}).value();
  db.query("SELECT pg_terminate_backend(" + session_of(db) + ", 30000)");
  auto second = theirs.acquire("r", {.ttl = 10min}).value();
  const auto take = update("stock").key("sku", "a").subtract("qty", 1);
  ASSERT_TRUE(first.check()) << "its clock says that it holds the lock";
  EXPECT_EQ(outcome_of(first.write(take)), "stale_token");
  EXPECT_EQ(outcome_of(second.write(take)), "ok");
  EXPECT_EQ(db.value("SELECT qty FROM stock"), "9");
}

TEST(PostgresAdvisory, P05_AHolderThatIsCutOffLosesTheLockWithItsTtl) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  support::tcp_proxy between{db.server().port()};
  auto a = connect(db.tcp_url(between.port()));
  auto b = connect(db.url());
  auto g = a.acquire("r", 2s);
  ASSERT_EQ(outcome_of(g), "ok");
  // No word gets through any more, and nothing tells the server so.
  between.hold_requests(true);
  between.hold_replies(true);
  EXPECT_EQ(outcome_of(b.acquire("r", 10s)), "busy");
  result<grant> next = fail(errc::busy, "not yet");
  EXPECT_TRUE(eventually([&] {
    next = b.acquire("r", 10min);
    return next.has_value();
  }));
  EXPECT_GE(boot_clock()->now(), g->valid_until());
  EXPECT_GT(next->token(), g->token());
}

TEST(PostgresAdvisory, ALockThatIsRenewedOutlivesItsFirstTtl) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto a = connect(db.url());
  auto b = connect(db.url());
  auto g = a.acquire("r", 2s);
  ASSERT_EQ(outcome_of(g), "ok");
  ASSERT_EQ(outcome_of(a.renew(*g, 10min)), "ok");
  // A shorter renewal does not take back what was promised.
  auto until = a.renew(*g, 1s);
  ASSERT_EQ(outcome_of(until), "ok");
  EXPECT_GT(*until - boot_clock()->now(), 9min);
  sql_session{db.url()}.query("SELECT pg_sleep(3)");
  EXPECT_EQ(outcome_of(b.acquire("r", 10min)), "busy");
  EXPECT_EQ(outcome_of(a.release(*g)), "ok");
}

TEST(PostgresAdvisory, AnExpiredLockCostsNoConnection) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto a = connect(db.url(), {.call_timeout = 30s, .connections = 1});
  for (int i = 0; i < 3; ++i) {
    auto g = a.acquire_briefly("r" + std::to_string(i));
    ASSERT_EQ(outcome_of(g), "ok") << g.error().message();
    ASSERT_TRUE(
        eventually([&] { return boot_clock()->now() > g->valid_until(); }));
  }
}

TEST(PostgresAdvisory, P06_NamesAreHashedTo64BitsOfTheirOwn) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto a = connect(db.url());
  sql_session stranger{db.url()};
  stranger.query("SELECT pg_advisory_lock(1)");
  // These two share a CRC-32.
  ASSERT_EQ(outcome_of(a.acquire("plumless", 10min)), "ok");
  ASSERT_EQ(outcome_of(a.acquire("buckeroo", 10min)), "ok");
  // The first eight bytes of SHA-256, as any tool computes them:
  //   printf 'lastdoor/%s' "$name" | sha256sum
  const auto key = [&](const std::string& name) {
    return db.value("SELECT lastdoor.lock_key('" + name + "')");
  };
  EXPECT_EQ(key("a"), "-8226498774586357714");
  EXPECT_EQ(key("plumless"), "5777805982747247630");
  EXPECT_EQ(key("buckeroo"), "514624068267128724");
  EXPECT_EQ(key("default/inventory/sku-1001"), "-6000855980590479410");
  EXPECT_EQ(key("\xC3\xA9"), "-4720016492311741335");
}

TEST(PostgresAdvisory, P11_ACounterThatWasSetBackIsRaised) {
  LASTDOOR_NEEDS_POSTGRES();
  const migrated_database db;
  auto a = connect(db.url());
  auto first = a.acquire("r", 10min);
  ASSERT_EQ(outcome_of(first), "ok");
  ASSERT_EQ(outcome_of(a.release(*first)), "ok");
  db.query("SELECT setval('lastdoor.token', 1, false)");
  auto second = a.acquire("r", 10min);
  ASSERT_EQ(outcome_of(second), "ok");
  EXPECT_GT(second->token(), first->token());
  EXPECT_EQ(advisory_rows(db), "1");
}

}  // namespace
}  // namespace lastdoor

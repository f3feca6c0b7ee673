// The lock on a Redis, the data in a Postgres: what most people run. Whatever
// the Redis forgets, the Postgres lets no late write in.
#include <gmock/gmock.h>

#include <lastdoor/lastdoor.hpp>
#include <lastdoor/locks/redis.hpp>
#include <lastdoor/testing/matchers.hpp>
#include <pqxx/result>
#include <pqxx/transaction_base>

#include "support/pg_ledger.hpp"
#include "support/temp_redis.hpp"

namespace lastdoor::support {
namespace {

using namespace std::chrono_literals;
using lastdoor::testing::FailsWith;
using lastdoor::testing::IsOk;
using ::testing::HasSubstr;

const std::string counter_key = "lastdoor:{default}:counter";

// The same acquisition by a holder that never looks at its clock.
grant blind(const grant& g) {
  return {g.resource(), g.owner(), g.token(), g.source(), time_point::max()};
}

class RedisPostgres : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_POSTGRES();
    LASTDOOR_NEEDS_REDIS();
    redis_ = std::make_unique<temp_redis>();
    db_.emplace();
    db_->run("CREATE TABLE stock (sku text PRIMARY KEY, qty integer)");
    db_->run("INSERT INTO stock VALUES ('a', 10), ('b', 10)");
    db_->fence("stock", guard_mode::strict);
    store_.emplace(db_->open());
    locks_.emplace(connect());
    door_.emplace(*locks_, *store_);
  }
  // A service of its own, as another process has.
  lock_service connect() {
    redis_locks_options options;
    options.call_timeout = 5s;
    return open_redis_locks(redis().url(), options).value();
  }
  temp_redis& redis() { return *redis_; }
  [[nodiscard]] std::string qty(const std::string& sku) const {
    return db_->value("SELECT qty FROM stock WHERE sku = '" + sku + "'");
  }
  [[nodiscard]] static statement take(const std::string& sku, int n) {
    return update("stock").key("sku", sku).subtract("qty", n);
  }
  // All ways in: a built statement, SQL behind a claim, a row of its own.
  void expect_shut_out(const grant& old) {
    EXPECT_THAT(store_->write(old, take("a", 1)), FailsWith(errc::stale_token));
    EXPECT_THAT(store_->write(old, take("b", 1)), FailsWith(errc::stale_token));
    EXPECT_THAT(
        store_->write(old, insert("stock").key("sku", "c").set("qty", 1)),
        FailsWith(errc::stale_token));
    EXPECT_THAT(store_->transaction(old,
                                    [](pqxx::transaction_base& tx) {
                                      tx.exec("DELETE FROM stock");
                                    }),
                FailsWith(errc::stale_token));
  }

  std::unique_ptr<temp_redis> redis_;
  std::optional<ledger_database> db_;
  std::optional<postgres_store> store_;
  std::optional<lock_service> locks_;
  std::optional<gateway<postgres_store>> door_;
};

TEST_F(RedisPostgres, X01_APausedHolderIsShutOutOfEveryRow) {
  auto first = door_->acquire("stock", {.ttl = 500ms, .renew = false});
  ASSERT_THAT(first, IsOk());
  const auto old = blind(first->grant());
  ASSERT_THAT(store_->write(old, take("a", 1)), IsOk());
  auto second = door_->acquire("stock", {.ttl = 10min, .wait_at_most = 1min});
  ASSERT_THAT(second, IsOk());
  expect_shut_out(old);
  EXPECT_THAT(second->write(take("a", 2)), IsOk());
  EXPECT_EQ(qty("a") + "/" + qty("b"), "7/10");
}

// The lock is forgotten while it is held: there are two holders, and only the
// newer one's writes count.
TEST_F(RedisPostgres, G8_AForgottenLockLetsNoLateWriteIn) {
  const struct {
    const char* what;
    std::function<void()> forget;
  } ways[] = {{"FLUSHALL", [&] { redis().say({"FLUSHALL"}); }},
              {"restart without data", [&] { redis().restart_empty(); }},
              {"counter set back", [&] {
                 redis().say({"SET", counter_key, "1"});
                 redis().say({"DEL", "lastdoor:{default}:lock:stock"});
               }}};
  gateway theirs{connect(), *store_};
  std::int64_t taken = 0;
  for (const auto& [what, forget] : ways) {
    SCOPED_TRACE(what);
    auto first = door_->acquire("stock", {.ttl = 10min, .wait_at_most = 1min});
    ASSERT_THAT(first, IsOk());
    ASSERT_THAT(first->write(take("a", 1)), IsOk());
    ++taken;
    forget();
    auto second = theirs.acquire("stock", {.ttl = 10min, .wait_at_most = 1min});
    ASSERT_THAT(second, IsOk());
    EXPECT_GT(second->token(), first->token());
    expect_shut_out(blind(first->grant()));
    EXPECT_THAT(second->write(take("a", 1)), IsOk());
    ++taken;
    EXPECT_THAT(second->release(), IsOk());
  }
  EXPECT_EQ(qty("a"), std::to_string(10 - taken));
  EXPECT_EQ(qty("b"), "10");
}

// Marks are data like any other: they come back with the rows.
TEST_F(RedisPostgres, G4_TheMarkOutlivesACrashOfTheStore) {
  temp_postgres server;
  const ledger_database db{server};
  db.run("CREATE TABLE stock (sku text PRIMARY KEY, qty integer)");
  db.run("INSERT INTO stock VALUES ('a', 10)");
  db.fence("stock", guard_mode::strict);
  auto store = db.open();
  gateway door{*locks_, store};
  auto first = door.acquire("stock", {.ttl = 10min});
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(locks_->release(first->grant()), IsOk());
  auto second = door.acquire("stock", {.ttl = 10min});
  ASSERT_THAT(second, IsOk());
  server.kill_hard();
  server.start();
  const auto old = blind(first->grant());
  // The first call may still meet the connection that the crash ended.
  EXPECT_TRUE(eventually([&] {
    return store.write(old, take("a", 1)).code() == errc::stale_token;
  }));
  EXPECT_EQ(db.value("SELECT qty FROM stock"), "10");
  EXPECT_THAT(second->write(take("a", 1), {.sequence = 1}), IsOk());
  EXPECT_EQ(db.value("SELECT qty FROM stock"), "9");
}

#ifdef LASTDOOR_EXAMPLE
TEST_F(RedisPostgres, TheExampleSellsEachPieceOnce) {
  const temp_database shop;
  const auto run = [&] {
    const auto told = run_shell(LASTDOOR_EXAMPLE " '" + redis().url() + "' '" +
                                shop.url() + "'");
    EXPECT_EQ(told.status, 0) << told.text;
    EXPECT_THAT(told.text, HasSubstr("40 sold, 60 left"));
    EXPECT_THAT(told.text, HasSubstr("the late sale: stale_token"));
    EXPECT_EQ(shop.value("SELECT qty FROM inventory"), "60");
    return std::stoll(shop.value("SELECT token FROM lastdoor.marks"));
  };
  const auto before = run();
  redis().say({"FLUSHALL"});
  EXPECT_GT(run(), before) << "the Redis forgot in between";
}
#endif

}  // namespace
}  // namespace lastdoor::support

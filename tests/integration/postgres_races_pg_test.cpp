// Writers that meet. P12 where the contract's pairs do not go: through a
// repository, between resources, and without the ledger; 10,000 pairs each
// when LASTDOOR_TEST_LONG is set.
#include <gtest/gtest.h>

#include <cstdlib>
#include <lastdoor/lastdoor.hpp>
#include <lastdoor/locks/postgres.hpp>
#include <latch>
#include <pqxx/result>
#include <pqxx/transaction_base>
#include <random>
#include <thread>

#include "support/pg_ledger.hpp"

namespace lastdoor::support {
namespace {

using namespace std::chrono_literals;
using lastdoor::testing::granted;
using lastdoor::testing::outcome_of;
using lastdoor::testing::terms;

int pairs() {
  return std::getenv("LASTDOOR_TEST_LONG") == nullptr ? 100 : 10'000;
}

// Both at once.
template <class One, class Other>
void race(One one, Other other) {
  std::latch start{2};
  std::thread second{[&] {
    start.arrive_and_wait();
    other();
  }};
  start.arrive_and_wait();
  one();
  second.join();
}

class PostgresRaces : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_POSTGRES();
    db_.emplace();
    db_->run("CREATE TABLE items (id text PRIMARY KEY, qty bigint)");
    db_->run("INSERT INTO items VALUES ('a', 0)");
    db_->fence("items", guard_mode::none);
    looks_.emplace(db_->url());
  }
  [[nodiscard]] std::string item() {
    return looks_->value("SELECT qty || '/' || fence_token FROM items");
  }
  // Pairs of writers of the one row, each with a resource of its own.
  void race_for_the_row(postgres_store& store) {
    std::mt19937_64 random{lastdoor::testing::test_seed()};
    std::int64_t last = 0;
    for (int i = 0; i < pairs(); ++i) {
      terms low{.token = last + 1, .resource = "low"};
      terms high{.token = last + 2, .resource = "high", .owner = 'b'};
      last += 2;
      if (random() % 2 == 0) {
        std::swap(low.resource, high.resource);
      }
      std::string of_low;
      std::string of_high;
      const auto write = [&](const terms& t) {
        return outcome_of(store.write(
            granted(t), update("items").key("id", "a").set("qty", t.token)));
      };
      race([&] { of_low = write(low); }, [&] { of_high = write(high); });
      ASSERT_EQ(of_high, "ok");
      ASSERT_TRUE(of_low == "ok" || of_low == "stale_token") << of_low;
      ASSERT_EQ(item(), std::to_string(last) + "/" + std::to_string(last));
    }
  }

  std::optional<ledger_database> db_;
  std::optional<sql_session> looks_;
};

// Knows nothing of fences, and its SQL writes none.
struct item_repository {
  void put(pqxx::transaction_base& tx, std::int64_t qty) {
    tx.exec("UPDATE items SET qty = " + std::to_string(qty));
  }
};

TEST_F(PostgresRaces, P12_PairsThroughARepositoryEndAtTheHigherToken) {
  auto store = db_->open();
  auto one = open_postgres_locks(db_->url(), {.notify = false}).value();
  auto other = open_postgres_locks(db_->url(), {.notify = false}).value();
  // Without a barrier the two meet at the first write of the newer one.
  gateway ours{one, store, {.barrier = barrier::at_first_write}};
  gateway theirs{other, store, {.barrier = barrier::at_first_write}};
  item_repository repo;
  const auto put = [&](session<postgres_store>& s) -> std::string {
    try {
      fenced_repository items{s, repo};
      items.call(&item_repository::put, s.token().value());
      return "ok";
    } catch (const failure& f) {
      return std::string{name_of(f.code())};
    }
  };
  for (int i = 0; i < pairs(); ++i) {
    auto low = ours.acquire("a", {.ttl = 10min, .renew = false}).value();
    one.release(low.grant()).value();
    auto high = theirs.acquire("a", {.ttl = 10min, .renew = false}).value();
    ASSERT_GT(high.token(), low.token());
    std::string of_low;
    std::string of_high;
    race([&] { of_low = put(low); }, [&] { of_high = put(high); });
    ASSERT_EQ(of_high, "ok");
    ASSERT_TRUE(of_low == "ok" || of_low == "stale_token") << of_low;
    ASSERT_EQ(item(), high.token().to_string() + "/0");
    ASSERT_EQ(put(low), of_low == "ok" ? "stale_token" : "lease_lost");
    high.release().value();
  }
}

TEST_F(PostgresRaces, P12_GrantsOfTwoResourcesMeetAtTheRow) {
  auto store = db_->open();
  race_for_the_row(store);
}

TEST_F(PostgresRaces, P12_TheColumnAloneDecidesWithoutTheLedger) {
  auto store = db_->open({.ledger = false});
  race_for_the_row(store);
}

// A built write is one statement, and its look at the mark is a lock on it. A
// barrier that did not wait for it would be passed before the write commits.
TEST_F(PostgresRaces, G5_TheNextBarrierWaitsForAStatementUnderWay) {
  auto store = db_->open();
  auto other = db_->open();
  const auto five = granted({.token = 5});
  const auto write = update("items").key("id", "a").add("qty", 1);
  ASSERT_EQ(outcome_of(store.write(five, write)), "ok");  // five is the mark
  sql_session holder{db_->url()};
  (void)holder.query("BEGIN");
  (void)holder.query("SELECT FROM items FOR UPDATE");
  const auto waiting = [&](const std::string& n) {
    return eventually([&] {
      return looks_->value(
                 "SELECT count(*) FROM pg_stat_activity WHERE datname = "
                 "current_database() AND wait_event_type = 'Lock'") == n;
    });
  };
  std::string of_write;
  std::string of_claim;
  std::thread writes{[&] { of_write = outcome_of(store.write(five, write)); }};
  EXPECT_TRUE(waiting("1"));
  std::thread claims{[&] {
    of_claim = outcome_of(other.claim(granted({.token = 6, .owner = 'b'})));
  }};
  EXPECT_TRUE(waiting("2")) << "the barrier was passed by a write under way";
  (void)holder.query("COMMIT");
  writes.join();
  claims.join();
  EXPECT_EQ(of_write, "ok");
  EXPECT_EQ(of_claim, "ok");
  EXPECT_EQ(item(), "2/5");
  EXPECT_EQ(outcome_of(store.write(five, write)), "stale_token");
}

}  // namespace
}  // namespace lastdoor::support

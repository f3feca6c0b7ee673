// Answers that get lost: P14. A relay between store and server loses them.
#include <gmock/gmock.h>

#include <lastdoor/testing/matchers.hpp>
#include <pqxx/result>
#include <pqxx/transaction_base>

#include "support/pg_ledger.hpp"
#include "support/pg_relay.hpp"

// libpqxx 6.4 loses an answer when its connection breaks; the leak checker
// of the sanitizer build is told that it is not ours.
extern "C" const char* __lsan_default_suppressions();  // NOLINT
extern "C" const char* __lsan_default_suppressions() { return "leak:libpqxx"; }

namespace lastdoor::support {
namespace {

using namespace std::chrono_literals;
using lastdoor::testing::FailsWith;
using lastdoor::testing::granted;
using lastdoor::testing::IsOk;
using loss = pg_relay::loss;

// With the zero byte that ends a query, since BEGIN may say COMMITTED.
const std::string commit_message{"COMMIT", 7};

class PostgresDoubt : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_POSTGRES();
    db_.emplace();
    db_->run("CREATE TABLE accounts (id text PRIMARY KEY, balance integer)");
    db_->run("INSERT INTO accounts VALUES ('ada', 0)");
    db_->fence("accounts", guard_mode::none);
    relay_.emplace(db_->server().port());
    store_.emplace(open());
    // So that each shape is known and prepared: what gets lost is the write.
    ASSERT_THAT(store_->claim(five_), IsOk());
    ASSERT_THAT(store_->write(five_, add(0)), IsOk());
  }
  [[nodiscard]] postgres_store open(postgres_store_options o = {}) const {
    return open_postgres_store(db_->tcp_url(relay_->port()), std::move(o))
        .value();
  }
  static statement add(std::int64_t n, const std::string& id = "ada") {
    return update("accounts").key("id", id).add("balance", n);
  }
  [[nodiscard]] std::string balance() const {
    return db_->value("SELECT balance FROM accounts WHERE id = 'ada'");
  }
  [[nodiscard]] result<void> transact(const write_options& o = {}) {
    return store_->transaction(
        five_,
        [&](pqxx::transaction_base& tx) {
          ++calls_;
          tx.exec("UPDATE accounts SET balance = balance + 1");
        },
        o);
  }

  const grant five_ = granted({.token = 5});
  std::optional<ledger_database> db_;
  std::optional<pg_relay> relay_;
  std::optional<postgres_store> store_;
  int calls_{0};
};

TEST_F(PostgresDoubt, P14_ACommitWhoseAnswerIsLostIsFoundToBeApplied) {
  relay_->on_next(commit_message, loss::answer);
  EXPECT_THAT(transact(), IsOk());
  EXPECT_EQ(relay_->lost(), 1);
  EXPECT_EQ(calls_, 1) << "no blind retry";
  EXPECT_EQ(balance(), "1");
}

TEST_F(PostgresDoubt, P14_ACommitThatNeverArrivedIsFoundNotToBeApplied) {
  relay_->on_next(commit_message, loss::request);
  const auto r = transact();
  ASSERT_THAT(r, FailsWith(errc::unavailable));
  EXPECT_TRUE(r.error().retryable());
  EXPECT_EQ(relay_->lost(), 1);
  EXPECT_EQ(balance(), "0");
  // The session that still waited for the COMMIT was ended, so nothing blocks
  // the retry or a newer grant.
  EXPECT_THAT(transact(), IsOk());
  EXPECT_EQ(balance(), "1");
  EXPECT_THAT(store_->claim(granted({.token = 6, .owner = 'b'})), IsOk());
}

TEST_F(PostgresDoubt, P14_WithNobodyToAskItStaysInDoubt) {
  store_.emplace(open({.lock_timeout = 500ms, .call_timeout = 2s}));
  bool answered = false;
  const auto r = store_->transaction(five_, [&](pqxx::transaction_base& tx) {
    tx.exec("UPDATE accounts SET balance = balance + 1");
    relay_->on_next(commit_message, loss::answer);
    relay_->refuse(true);
    answered = true;
  });
  EXPECT_TRUE(answered);
  ASSERT_THAT(r, FailsWith(errc::in_doubt));
  EXPECT_FALSE(r.error().retryable());
  EXPECT_EQ(balance(), "1");
}

TEST_F(PostgresDoubt, P14_F08_ANumberedWriteIsSettledAndItsRetryHarmless) {
  relay_->on_next(commit_message, loss::answer);
  const auto r = store_->write(five_, add(1), {.sequence = 1});
  EXPECT_THAT(r, IsOk());
  EXPECT_EQ(balance(), "1");
  const auto again = store_->write(five_, add(1), {.sequence = 1});
  ASSERT_THAT(again, IsOk());
  EXPECT_TRUE(again->already_applied);
  EXPECT_EQ(balance(), "1");

  relay_->on_next(commit_message, loss::request);
  EXPECT_THAT(store_->write(five_, add(1), {.sequence = 2}),
              FailsWith(errc::unavailable));
  EXPECT_THAT(store_->write(five_, add(1), {.sequence = 2}), IsOk());
  EXPECT_EQ(balance(), "2");
  EXPECT_EQ(relay_->lost(), 2);
}

// One statement, one round trip: its transaction id is never heard of.
TEST_F(PostgresDoubt, P14_AnUnnumberedStatementStaysInDoubtAndIsNotRepeated) {
  db_->run("INSERT INTO accounts VALUES ('needle', 0)");
  relay_->on_next("needle", loss::answer);
  const auto r = store_->write(five_, add(1, "needle"));
  ASSERT_THAT(r, FailsWith(errc::in_doubt));
  EXPECT_EQ(relay_->lost(), 1);
  EXPECT_EQ(db_->value("SELECT balance FROM accounts WHERE id = 'needle'"),
            "1");
}

TEST_F(PostgresDoubt, P14_OncePerGrantTheRowTells) {
  db_->run("INSERT INTO accounts VALUES ('needle', 0)");
  store_.emplace(open({.rule = write_rule::once_per_grant}));
  ASSERT_THAT(store_->write(five_, add(0, "other")), FailsWith(errc::missing));
  relay_->on_next("needle", loss::answer);
  const auto r = store_->write(five_, add(1, "needle"));
  ASSERT_THAT(r, IsOk());
  EXPECT_TRUE(r->already_applied);
  const auto again = store_->write(five_, add(1, "needle"));
  ASSERT_THAT(again, IsOk());
  EXPECT_TRUE(again->already_applied);
  EXPECT_EQ(db_->value("SELECT balance FROM accounts WHERE id = 'needle'"),
            "1");
}

TEST_F(PostgresDoubt, P14_AClaimWhoseAnswerIsLostIsClaimedAgain) {
  const auto six =
      granted({.token = 6, .resource = "needle-resource", .owner = 'b'});
  relay_->on_next("needle-resource", loss::answer);
  EXPECT_THAT(store_->claim(six), IsOk());
  EXPECT_EQ(relay_->lost(), 1);
  EXPECT_EQ(store_->read_mark(six.resource()).value().value(), 6);
}

TEST_F(PostgresDoubt, ALostAnswerBeforeTheCommitIsNoDoubt) {
  relay_->on_next("BEGIN", loss::answer);
  const auto r = transact();
  EXPECT_THAT(r, FailsWith(errc::unavailable));
  EXPECT_EQ(calls_, 0);
  relay_->on_next("balance + 1", loss::answer);
  EXPECT_THAT(transact(), FailsWith(errc::unavailable));
  EXPECT_EQ(calls_, 1);
  EXPECT_EQ(balance(), "0");
}

}  // namespace
}  // namespace lastdoor::support

// The gateway and the repository wrapper on a real file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <lastdoor/lastdoor.hpp>
#include <lastdoor/locks/sqlite.hpp>
#include <lastdoor/migrate.hpp>
#include <lastdoor/stores/sqlite.hpp>
#include <lastdoor/testing/fake_clock.hpp>
#include <lastdoor/testing/matchers.hpp>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "drivers/sqlite.hpp"
#include "support/temp_folder.hpp"

namespace lastdoor {
namespace {

using namespace std::chrono_literals;
using testing::FailsWith;
using testing::IsOk;

class event_log : public observer {
 public:
  void on_event(const event& e) noexcept override {
    const std::lock_guard lock{mutex_};
    kinds_.push_back(e.kind);
  }
  int count(event_kind kind) const {
    const std::lock_guard lock{mutex_};
    return static_cast<int>(std::count(kinds_.begin(), kinds_.end(), kind));
  }

 private:
  mutable std::mutex mutex_;
  std::vector<event_kind> kinds_;
};

void must(const std::string& path, const std::string& sql) {
  auto db =
      sqlite_driver::connection::open(path, sqlite_driver::open_mode::create);
  ASSERT_THAT(db, IsOk());
  ASSERT_THAT(db->exec(sql, "preparing the test"), IsOk());
}

std::int64_t number(const std::string& path, const std::string& sql) {
  auto db =
      sqlite_driver::connection::open(path, sqlite_driver::open_mode::existing)
          .value();
  auto s = db.prepare(sql, "reading for the test").value();
  return s.step("reading for the test").value() ? s.integer(0) : -1;
}

// The same acquisition, but blind to its own clock: a holder that never
// looks whether its lease is over.
grant blind(const grant& g) {
  return {g.resource(), g.owner(), g.token(), g.source(), time_point::max()};
}

class GatewaySqlite : public ::testing::Test {
 protected:
  void SetUp() override {
    must(shop_, "CREATE TABLE stock (sku TEXT PRIMARY KEY, qty INTEGER)");
    must(shop_, "INSERT INTO stock VALUES ('a', 10), ('b', 10)");
    ASSERT_THAT(sqlite::migrate_up(shop_), IsOk());
    ASSERT_THAT(sqlite::add_fence(shop_, {.table = "stock"}), IsOk());
    open(boot_clock());
  }

  // With a clock of its own, a test needs no lease so short that a slow disk
  // outlasts it.
  void open(const std::shared_ptr<clock>& time) {
    sqlite_locks_options options;
    options.service.observe = log_;
    options.service.time = time;
    sqlite_store_options store_options;
    store_options.time = time;
    locks_.emplace(open_sqlite_locks(locks_file_, options).value());
    store_.emplace(open_sqlite_store(shop_, store_options).value());
  }

  std::int64_t quantity(const std::string& sku) {
    return number(shop_, "SELECT qty FROM stock WHERE sku = '" + sku + "'");
  }

  statement take(const std::string& sku, int n) {
    return update("stock").key("sku", sku).subtract("qty", n);
  }

  support::temp_folder folder_;
  std::string shop_{folder_.path("shop.db")};
  std::string locks_file_{folder_.path("locks.db")};
  std::shared_ptr<event_log> log_{std::make_shared<event_log>()};
  std::optional<lock_service> locks_;
  std::optional<sqlite_store> store_;
};

TEST_F(GatewaySqlite, G5_TheMarkIsRaisedBeforeTheGrantIsHandedOut) {
  gateway door{*locks_, *store_};
  auto session = door.acquire("stock");
  ASSERT_THAT(session, IsOk());
  const auto seen = store_->read_mark(session->grant().resource());
  ASSERT_THAT(seen, IsOk());
  EXPECT_EQ(seen->value(), session->token().value());
}

TEST_F(GatewaySqlite, G5_AnEarlierGrantCannotWriteRowsTheNewOneNeverTouched) {
  const auto time = std::make_shared<testing::fake_clock>();
  open(time);
  gateway door{*locks_, *store_};
  auto first = door.acquire("stock", {.ttl = 10s, .renew = false});
  ASSERT_THAT(first, IsOk());
  const grant late = blind(first->grant());
  time->jump(10s);
  auto second = door.acquire("stock");
  ASSERT_THAT(second, IsOk());
  ASSERT_LT(late.token(), second->token());

  EXPECT_THAT(store_->write(late, take("b", 1)), FailsWith(errc::stale_token));
  EXPECT_EQ(quantity("b"), 10);
}

TEST_F(GatewaySqlite, F15_WithoutTheBarrierTheGapIsOpenUntilTheFirstWrite) {
  const auto time = std::make_shared<testing::fake_clock>();
  open(time);
  gateway door{*locks_, *store_, {.barrier = barrier::at_first_write}};
  auto first = door.acquire("stock", {.ttl = 10s, .renew = false});
  ASSERT_THAT(first, IsOk());
  const grant late = blind(first->grant());
  time->jump(10s);
  auto second = door.acquire("stock");
  ASSERT_THAT(second, IsOk());

  EXPECT_THAT(store_->write(late, take("a", 1)), IsOk());
  EXPECT_THAT(second->write(take("b", 1)), IsOk());
  EXPECT_THAT(store_->write(late, take("a", 1)), FailsWith(errc::stale_token));
  EXPECT_EQ(quantity("a"), 9);
}

TEST_F(GatewaySqlite, X03_AHolderPastItsTimeSendsNothing) {
  const auto time = std::make_shared<testing::fake_clock>();
  open(time);
  gateway door{*locks_, *store_, {.barrier = barrier::at_first_write}};
  auto session = door.acquire("stock", {.ttl = 10s, .renew = false});
  ASSERT_THAT(session, IsOk());
  time->jump(10s);
  EXPECT_THAT(session->write(take("a", 1)), FailsWith(errc::lease_lost));
  EXPECT_THAT(session->transaction([](sqlite3*) {}),
              FailsWith(errc::lease_lost));
  EXPECT_EQ(quantity("a"), 10);
  const auto seen = store_->read_mark(session->grant().resource());
  ASSERT_THAT(seen, IsOk());
  EXPECT_TRUE(seen->none());  // not even the claim went out
}

TEST_F(GatewaySqlite, G8_ASourceBehindTheMarkIsRaisedAndAskedAgain) {
  const grant old{
      resource_name::parse("stock").value(), owner_id::generate().value(),
      fencing_token::from(900).value(), locks_->source(), time_point::max()};
  ASSERT_THAT(store_->claim(old), IsOk());

  gateway door{*locks_, *store_};
  auto session = door.acquire("stock");
  ASSERT_THAT(session, IsOk());
  EXPECT_GT(session->token().value(), 900);
  EXPECT_EQ(log_->count(event_kind::regressed), 1);
  EXPECT_EQ(log_->count(event_kind::floor_raised), 1);
}

TEST_F(GatewaySqlite, G8_EvenWithoutBarrierTheNextGrantIsAboveTheMark) {
  const grant old{
      resource_name::parse("stock").value(), owner_id::generate().value(),
      fencing_token::from(900).value(), locks_->source(), time_point::max()};
  ASSERT_THAT(store_->claim(old), IsOk());

  gateway door{*locks_, *store_, {.barrier = barrier::at_first_write}};
  {
    auto session = door.acquire("stock");
    ASSERT_THAT(session, IsOk());
    EXPECT_THAT(session->write(take("a", 1)), FailsWith(errc::stale_token));
  }
  auto next = door.acquire("stock", {.wait_at_most = 20s});
  ASSERT_THAT(next, IsOk());
  EXPECT_GT(next->token().value(), 900);
}

// A back end whose counter cannot be raised; otherwise the real one.
class stuck_source : public lock_backend {
 public:
  explicit stuck_source(std::unique_ptr<lock_backend> real)
      : real_{std::move(real)} {}
  const source_name& source() const noexcept override {
    return real_->source();
  }
  duration max_ttl() const noexcept override { return real_->max_ttl(); }
  duration call_timeout() const noexcept override {
    return real_->call_timeout();
  }
  result<lease_answer> try_acquire(const lease_request& r) override {
    return real_->try_acquire(r);
  }
  result<time_point> renew(const grant& g, duration ttl,
                           time_point deadline) override {
    return real_->renew(g, ttl, deadline);
  }
  result<void> release(const grant& g, time_point deadline) override {
    return real_->release(g, deadline);
  }
  result<lease_status> inspect(const resource_name& r) override {
    return real_->inspect(r);
  }
  result<void> raise_floor(mark) override { return {}; }

 private:
  std::unique_ptr<lock_backend> real_;
};

TEST_F(GatewaySqlite, G8_ASourceThatStaysBehindIsRefusedAndNothingIsHeld) {
  const grant old{
      resource_name::parse("stock").value(), owner_id::generate().value(),
      fencing_token::from(900).value(), locks_->source(), time_point::max()};
  ASSERT_THAT(store_->claim(old), IsOk());

  lock_service stuck{
      std::make_unique<stuck_source>(open_sqlite_backend(locks_file_).value())};
  gateway door{stuck, *store_};
  auto session = door.acquire("stock");
  ASSERT_THAT(session, FailsWith(errc::token_regressed));
  EXPECT_EQ(session.error().seen(), 900);
  auto status = locks_->inspect("stock");
  ASSERT_THAT(status, IsOk());
  EXPECT_FALSE(status->held);
}

TEST_F(GatewaySqlite, F10_ATokenOfAnotherSourceIsRefusedUntilHandedOver) {
  const auto other = source_name::parse("redis/shop").value();
  const grant old{resource_name::parse("stock").value(),
                  owner_id::generate().value(), fencing_token::from(7).value(),
                  other, time_point::max()};
  ASSERT_THAT(store_->claim(old), IsOk());

  gateway door{*locks_, *store_};
  EXPECT_THAT(door.acquire("stock"), FailsWith(errc::wrong_source));

  ASSERT_THAT(locks_->raise_floor(store_->highest_mark().value()), IsOk());
  ASSERT_THAT(store_->hand_over(other, locks_->source()), IsOk());
  auto session = door.acquire("stock", {.wait_at_most = 20s});
  ASSERT_THAT(session, IsOk());
  EXPECT_GT(session->token().value(), 7);
  EXPECT_THAT(store_->claim(old), FailsWith(errc::wrong_source));
}

TEST_F(GatewaySqlite, AStaleAnswerEndsTheLease) {
  gateway door{*locks_, *store_};
  auto session = door.acquire("stock");
  ASSERT_THAT(session, IsOk());
  const auto lost = session->lost();
  const grant newer{session->grant().resource(), owner_id::generate().value(),
                    fencing_token::from(session->token().value() + 1).value(),
                    session->grant().source(), time_point::max()};
  ASSERT_THAT(store_->claim(newer), IsOk());

  EXPECT_THAT(session->write(take("a", 1)), FailsWith(errc::stale_token));
  EXPECT_TRUE(lost.stop_requested());
  EXPECT_EQ(session->held().why_lost(), loss_reason::overtaken);
  EXPECT_THAT(session->write(take("a", 1)), FailsWith(errc::lease_lost));
  EXPECT_EQ(quantity("a"), 10);
  EXPECT_EQ(log_->count(event_kind::refused), 1);
}

// A repository as people write them: it knows nothing of fences.
class stock_repository {
 public:
  int take(sqlite3* db, const std::string& sku, int n) {
    run(db, "UPDATE stock SET qty = qty - " + std::to_string(n) +
                " WHERE sku = '" + sku + "'");
    return left(db, sku);
  }
  int left(sqlite3* db, const std::string& sku) const {
    sqlite3_stmt* s = nullptr;
    const std::string sql = "SELECT qty FROM stock WHERE sku = '" + sku + "'";
    if (sqlite3_prepare_v2(db, sql.c_str(), -1, &s, nullptr) != SQLITE_OK) {
      throw std::runtime_error{sqlite3_errmsg(db)};
    }
    const int n = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int(s, 0) : -1;
    sqlite3_finalize(s);
    if (n < 0)
      throw std::runtime_error{"oversold"};
    return n;
  }

 private:
  static void run(sqlite3* db, const std::string& sql) {
    if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) {
      throw std::runtime_error{sqlite3_errmsg(db)};
    }
  }
};

TEST_F(GatewaySqlite, ARepositoryWorksUnchangedBehindTheFence) {
  gateway door{*locks_, *store_};
  auto session = door.acquire("stock");
  ASSERT_THAT(session, IsOk());
  stock_repository plain;
  fenced_repository stock{*session, plain};

  EXPECT_EQ(stock.call(&stock_repository::take, "a", 3), 7);
  EXPECT_EQ(stock.call(&stock_repository::left, "a"), 7);
  stock.call([](stock_repository& repo, sqlite3* db) {
    repo.take(db, "a", 1);
    repo.take(db, "b", 1);
  });
  EXPECT_EQ(quantity("a"), 6);
  EXPECT_EQ(quantity("b"), 9);
}

TEST_F(GatewaySqlite, AnExceptionOfTheRepositoryRollsBackAndPassesThrough) {
  gateway door{*locks_, *store_};
  auto session = door.acquire("stock");
  ASSERT_THAT(session, IsOk());
  stock_repository plain;
  fenced_repository stock{*session, plain};

  EXPECT_THROW(stock.call([](stock_repository& repo, sqlite3* db) {
    repo.take(db, "b", 1);
    repo.take(db, "a", 99);
  }),
               std::runtime_error);
  EXPECT_EQ(quantity("a"), 10);
  EXPECT_EQ(quantity("b"), 10);
  EXPECT_EQ(stock.call(&stock_repository::take, "a", 1), 9);
}

TEST_F(GatewaySqlite, X01_AStaleRepositoryCallThrowsAndChangesNothing) {
  gateway door{*locks_, *store_};
  auto session = door.acquire("stock");
  ASSERT_THAT(session, IsOk());
  stock_repository plain;
  fenced_repository stock{*session, plain};
  const grant newer{session->grant().resource(), owner_id::generate().value(),
                    fencing_token::from(session->token().value() + 1).value(),
                    session->grant().source(), time_point::max()};
  ASSERT_THAT(store_->claim(newer), IsOk());

  try {
    stock.call(&stock_repository::take, "a", 3);
    FAIL() << "a stale call went through";
  } catch (const failure& f) {
    EXPECT_EQ(f.code(), errc::stale_token);
    EXPECT_EQ(f.why().seen(), newer.token().value());
  }
  EXPECT_EQ(quantity("a"), 10);
}

}  // namespace
}  // namespace lastdoor

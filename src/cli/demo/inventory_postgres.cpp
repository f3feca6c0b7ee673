#include "cli/demo/inventory_postgres.hpp"

#include <lastdoor/gateway.hpp>
#include <lastdoor/stores/postgres.hpp>
#include <pqxx/transaction_base>
#include <utility>

#include "drivers/postgres.hpp"

namespace lastdoor::cli {

namespace {

namespace driver = postgres_driver;
using namespace std::chrono_literals;

constexpr std::string_view selling = "the demo's sale";
constexpr duration patience = 10s;

// The same SQL in both rounds: the fence is around it, not in it. Numbers and
// a key of the demo's own making, so the text can carry them.
std::string sale_sql(const demo_sale& s) {
  return "UPDATE demo_lastdoor_stock SET qty = " +
         std::to_string(s.stock_left) +
         " WHERE sku = " + std::to_string(s.sku) +
         "; INSERT INTO demo_lastdoor_orders (id, sku, qty, worker, token) "
         "VALUES ('" +
         s.order + "', " + std::to_string(s.sku) + ", " +
         std::to_string(s.quantity) + ", " + std::to_string(s.worker) + ", " +
         std::to_string(s.token.value()) + ")";
}

// A plain connection, with a limit on each statement.
class plain {
 public:
  explicit plain(driver::connection db) : db_{std::move(db)} {}

  // Several statements are one transaction.
  result<void> exec(std::string_view sql, std::string_view doing) {
    auto done = db_.script({sql, doing, driver::effect::writes, deadline()});
    if (!done) {
      return done.error();
    }
    return {};
  }
  result<driver::answer> ask(std::string_view sql, std::string_view doing,
                             const driver::arguments& with = {}) {
    return db_.run({sql, doing, driver::effect::reads, deadline()}, with);
  }

 private:
  [[nodiscard]] time_point deadline() const {
    return db_.time()->now() + patience;
  }
  driver::connection db_;
};

class plain_tenure final : public demo_tenure {
 public:
  plain_tenure(lease l, plain& db) : lease_{std::move(l)}, db_{db} {}
  const lastdoor::grant& grant() const override { return lease_.grant(); }
  result<void> check() const override { return lease_.check(); }
  result<void> sell(const demo_sale& s) override {
    return db_.exec(sale_sql(s), selling);
  }
  result<void> release() override { return lease_.release(); }

 private:
  lease lease_;
  plain& db_;
};

class fenced_tenure final : public demo_tenure {
 public:
  explicit fenced_tenure(session<postgres_store> s) : session_{std::move(s)} {}
  const lastdoor::grant& grant() const override { return session_.grant(); }
  result<void> check() const override { return session_.check(); }
  result<void> sell(const demo_sale& s) override {
    return session_.transaction(
        [&](pqxx::transaction_base& tx) { tx.exec(sale_sql(s)); });
  }
  result<void> release() override { return session_.release(); }

 private:
  session<postgres_store> session_;
};

class postgres_inventory final : public demo_inventory {
 public:
  postgres_inventory(postgres_store store, driver::connection db)
      : store_{std::move(store)}, db_{std::move(db)} {}

  result<void> create(int skus, std::int64_t stock) override;
  result<void> drop() override;
  result<std::int64_t> stock(int sku) override;
  result<std::vector<demo_balance>> audit() override;
  result<tenure_ptr> lock_only(lock_service& locks, int sku,
                               const acquire_options& o) override;
  result<tenure_ptr> fenced(lock_service& locks, int sku,
                            const acquire_options& o) override;
  result<void> sell_blindly(const lastdoor::grant& old,
                            const demo_sale& s) override;

 private:
  postgres_store store_;
  plain db_;
};

result<void> postgres_inventory::create(int skus, std::int64_t stock) {
  auto made = db_.exec(
      "CREATE TABLE demo_lastdoor_stock (sku integer PRIMARY KEY, "
      "qty bigint NOT NULL, initial bigint NOT NULL); "
      "CREATE TABLE demo_lastdoor_orders (id text PRIMARY KEY, "
      "sku integer NOT NULL, qty bigint NOT NULL, worker integer NOT NULL, "
      "token bigint NOT NULL); "
      "INSERT INTO demo_lastdoor_stock SELECT sku, " +
          std::to_string(stock) + ", " + std::to_string(stock) +
          " FROM generate_series(1, " + std::to_string(skus) + ") sku",
      "making the demo's tables");
  if (!made && made.error().backend() == "42P07") {
    return fail(errc::precondition_failed,
                "the tables demo_lastdoor_stock and demo_lastdoor_orders are "
                "there: another demo is running, or one was killed; drop them "
                "if it was");
  }
  return made;
}

result<void> postgres_inventory::drop() {
  return db_.exec(
      "DROP TABLE IF EXISTS demo_lastdoor_orders, demo_lastdoor_stock",
      "dropping the demo's tables");
}

result<std::int64_t> postgres_inventory::stock(int sku) {
  auto read = db_.ask(
      "SELECT qty FROM demo_lastdoor_stock WHERE sku = $1::integer",
      "reading the demo's stock", driver::arguments{}.add(std::int64_t{sku}));
  if (!read) {
    return read.error();
  }
  if (read->empty()) {
    return fail(errc::missing, "the demo's stock has no such SKU");
  }
  return read->integer(0, 0);
}

result<std::vector<demo_balance>> postgres_inventory::audit() {
  auto read = db_.ask(
      "SELECT s.sku, s.initial, s.qty, (SELECT coalesce(sum(o.qty), 0) "
      "FROM demo_lastdoor_orders o WHERE o.sku = s.sku)::bigint "
      "FROM demo_lastdoor_stock s ORDER BY s.sku",
      "comparing stock and orders");
  if (!read) {
    return read.error();
  }
  std::vector<demo_balance> all;
  for (int i = 0; i < read->rows(); ++i) {
    all.push_back({static_cast<int>(read->integer(i, 0)), read->integer(i, 1),
                   read->integer(i, 3), read->integer(i, 2)});
  }
  return all;
}

result<demo_inventory::tenure_ptr> postgres_inventory::lock_only(
    lock_service& locks, int sku, const acquire_options& o) {
  auto l = locks.acquire(demo_resource(sku), o);
  if (!l) {
    return l.error();
  }
  return tenure_ptr{std::make_unique<plain_tenure>(std::move(*l), db_)};
}

result<demo_inventory::tenure_ptr> postgres_inventory::fenced(
    lock_service& locks, int sku, const acquire_options& o) {
  gateway<postgres_store> door{locks, store_};
  auto s = door.acquire(demo_resource(sku), o);
  if (!s) {
    return s.error();
  }
  return tenure_ptr{std::make_unique<fenced_tenure>(std::move(*s))};
}

result<void> postgres_inventory::sell_blindly(const lastdoor::grant& old,
                                              const demo_sale& s) {
  const lastdoor::grant unaware{old.resource(), old.owner(), old.token(),
                                old.source(), time_point::max()};
  return store_.transaction(
      unaware, [&](pqxx::transaction_base& tx) { tx.exec(sale_sql(s)); });
}

}  // namespace

result<std::unique_ptr<demo_inventory>> open_postgres_inventory(
    const std::string& url) {
  auto s = open_postgres_store(url);
  if (!s) {
    return s.error();
  }
  auto where = driver::parse_endpoint(url);
  if (!where) {
    return where.error();
  }
  auto db =
      driver::connection::open(*where, {}, boot_clock()->now() + patience);
  if (!db) {
    return db.error();
  }
  return std::unique_ptr<demo_inventory>{
      std::make_unique<postgres_inventory>(std::move(*s), std::move(*db))};
}

}  // namespace lastdoor::cli

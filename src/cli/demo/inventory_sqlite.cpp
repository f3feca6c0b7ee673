#include "cli/demo/inventory_sqlite.hpp"

#include <lastdoor/gateway.hpp>
#include <lastdoor/stores/sqlite.hpp>
#include <optional>
#include <utility>

#include "drivers/sqlite.hpp"

namespace lastdoor::cli {

namespace {

namespace driver = sqlite_driver;

constexpr std::string_view selling = "the demo's sale";

// The same SQL in both rounds: the fence is around it, not in it.
result<void> write_sale(driver::connection& db, const demo_sale& s) {
  auto stock = db.prepare(
      "UPDATE demo_lastdoor_stock SET qty = ?1 WHERE sku = ?2", selling);
  if (!stock) {
    return stock.error();
  }
  stock->bind(1, s.stock_left).bind(2, std::int64_t{s.sku});
  if (auto ok = stock->run(selling); !ok) {
    return ok.error();
  }
  auto order = db.prepare(
      "INSERT INTO demo_lastdoor_orders (id, sku, qty, worker, token) "
      "VALUES (?1, ?2, ?3, ?4, ?5)",
      selling);
  if (!order) {
    return order.error();
  }
  order->bind(1, std::string_view{s.order})
      .bind(2, std::int64_t{s.sku})
      .bind(3, s.quantity)
      .bind(4, std::int64_t{s.worker})
      .bind(5, s.token.value());
  return order->run(selling);
}

result<void> sell_plainly(driver::connection& db, const demo_sale& s) {
  auto tx = driver::transaction::begin_immediate(db, selling);
  if (!tx) {
    return tx.error();
  }
  if (auto ok = write_sale(db, s); !ok) {
    return ok.error();
  }
  return tx->commit(selling);
}

class plain_tenure final : public demo_tenure {
 public:
  plain_tenure(lease l, driver::connection& db)
      : lease_{std::move(l)}, db_{db} {}
  const lastdoor::grant& grant() const override { return lease_.grant(); }
  result<void> check() const override { return lease_.check(); }
  result<void> sell(const demo_sale& s) override {
    return sell_plainly(db_, s);
  }
  result<void> release() override { return lease_.release(); }

 private:
  lease lease_;
  driver::connection& db_;
};

class fenced_tenure final : public demo_tenure {
 public:
  explicit fenced_tenure(session<sqlite_store> s) : session_{std::move(s)} {}
  const lastdoor::grant& grant() const override { return session_.grant(); }
  result<void> check() const override { return session_.check(); }
  result<void> sell(const demo_sale& s) override {
    return session_.transaction([&](sqlite3* raw) {
      auto db = driver::connection::borrow(raw);
      return write_sale(db, s);
    });
  }
  result<void> release() override { return session_.release(); }

 private:
  session<sqlite_store> session_;
};

class sqlite_inventory final : public demo_inventory {
 public:
  sqlite_inventory(sqlite_store store, driver::connection db)
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
  result<bool> tables_are_there();

  sqlite_store store_;
  driver::connection db_;
};

result<bool> sqlite_inventory::tables_are_there() {
  auto look = db_.prepare(
      "SELECT 1 FROM sqlite_schema WHERE name IN "
      "('demo_lastdoor_stock', 'demo_lastdoor_orders')",
      "looking for the demo's tables");
  if (!look) {
    return look.error();
  }
  return look->step("looking for the demo's tables");
}

result<void> sqlite_inventory::create(int skus, std::int64_t stock) {
  constexpr std::string_view doing = "making the demo's tables";
  auto there = tables_are_there();
  if (!there) {
    return there.error();
  }
  if (*there) {
    return fail(errc::precondition_failed,
                "the tables demo_lastdoor_stock and demo_lastdoor_orders are "
                "there: another demo is running, or one was killed; drop them "
                "if it was");
  }
  auto tx = driver::transaction::begin_immediate(db_, doing);
  if (!tx) {
    return tx.error();
  }
  auto made = db_.exec(
      "CREATE TABLE demo_lastdoor_stock ("
      "  sku INTEGER PRIMARY KEY, qty INTEGER NOT NULL,"
      "  initial INTEGER NOT NULL);"
      "CREATE TABLE demo_lastdoor_orders ("
      "  id TEXT PRIMARY KEY, sku INTEGER NOT NULL, qty INTEGER NOT NULL,"
      "  worker INTEGER NOT NULL, token INTEGER NOT NULL);",
      doing);
  if (!made) {
    return made.error();
  }
  auto add =
      db_.prepare("INSERT INTO demo_lastdoor_stock VALUES (?1, ?2, ?2)", doing);
  if (!add) {
    return add.error();
  }
  for (int sku = 1; sku <= skus; ++sku) {
    add->bind(1, std::int64_t{sku}).bind(2, stock);
    if (auto ok = add->run(doing); !ok) {
      return ok.error();
    }
  }
  return tx->commit(doing);
}

result<void> sqlite_inventory::drop() {
  return db_.exec(
      "DROP TABLE IF EXISTS demo_lastdoor_orders;"
      "DROP TABLE IF EXISTS demo_lastdoor_stock;",
      "dropping the demo's tables");
}

result<std::int64_t> sqlite_inventory::stock(int sku) {
  constexpr std::string_view doing = "reading the demo's stock";
  auto read =
      db_.cached("SELECT qty FROM demo_lastdoor_stock WHERE sku = ?1", doing);
  if (!read) {
    return read.error();
  }
  const driver::scoped_reset at_end{**read};
  auto row = (*read)->bind(1, std::int64_t{sku}).step(doing);
  if (!row) {
    return row.error();
  }
  if (!*row) {
    return fail(errc::missing, "the demo's stock has no such SKU");
  }
  return (*read)->integer(0);
}

result<std::vector<demo_balance>> sqlite_inventory::audit() {
  constexpr std::string_view doing = "comparing stock and orders";
  auto read = db_.prepare(
      "SELECT s.sku, s.initial, s.qty, (SELECT coalesce(sum(o.qty), 0) "
      "FROM demo_lastdoor_orders o WHERE o.sku = s.sku) "
      "FROM demo_lastdoor_stock s ORDER BY s.sku",
      doing);
  if (!read) {
    return read.error();
  }
  std::vector<demo_balance> all;
  for (;;) {
    auto more = read->step(doing);
    if (!more) {
      return more.error();
    }
    if (!*more) {
      return all;
    }
    all.push_back({static_cast<int>(read->integer(0)), read->integer(1),
                   read->integer(3), read->integer(2)});
  }
}

result<demo_inventory::tenure_ptr> sqlite_inventory::lock_only(
    lock_service& locks, int sku, const acquire_options& o) {
  auto l = locks.acquire(demo_resource(sku), o);
  if (!l) {
    return l.error();
  }
  return tenure_ptr{std::make_unique<plain_tenure>(std::move(*l), db_)};
}

result<demo_inventory::tenure_ptr> sqlite_inventory::fenced(
    lock_service& locks, int sku, const acquire_options& o) {
  gateway<sqlite_store> door{locks, store_};
  auto s = door.acquire(demo_resource(sku), o);
  if (!s) {
    return s.error();
  }
  return tenure_ptr{std::make_unique<fenced_tenure>(std::move(*s))};
}

result<void> sqlite_inventory::sell_blindly(const lastdoor::grant& old,
                                            const demo_sale& s) {
  const lastdoor::grant unaware{old.resource(), old.owner(), old.token(),
                                old.source(), time_point::max()};
  return store_.transaction(unaware, [&](sqlite3* raw) {
    auto db = driver::connection::borrow(raw);
    return write_sale(db, s);
  });
}

}  // namespace

result<std::unique_ptr<demo_inventory>> open_sqlite_inventory(
    const std::string& path) {
  auto s = open_sqlite_store(path);
  if (!s) {
    return s.error();
  }
  auto db = driver::connection::open(path, driver::open_mode::existing);
  if (!db) {
    return db.error();
  }
  return std::unique_ptr<demo_inventory>{
      std::make_unique<sqlite_inventory>(std::move(*s), std::move(*db))};
}

}  // namespace lastdoor::cli

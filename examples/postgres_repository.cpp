// A repository as people write them for libpqxx, and what it takes to fence
// it: nothing in the class, one wrapper around it.
//
//   example_postgres_repository postgresql://USER@HOST/DATABASE
//
// Makes the table inventory there, and lastdoor's own.
#include <fmt/format.h>

#include <iostream>
#include <lastdoor/lastdoor.hpp>
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/migrate.hpp>
#include <lastdoor/repository.hpp>
#include <lastdoor/stores/postgres.hpp>
#include <pqxx/connection>
#include <pqxx/result>
#include <pqxx/transaction>
#include <stdexcept>
#include <string>

using namespace std::chrono_literals;

namespace {

// Knows nothing of locks, tokens or fences.
class inventory_repository {
 public:
  struct out_of_stock : std::runtime_error {
    using std::runtime_error::runtime_error;
  };

  // Takes some away. Answers what is left.
  int take(pqxx::transaction_base& tx, const std::string& sku, int quantity) {
    const auto left = tx.exec(fmt::format(
        "UPDATE inventory SET qty = qty - {0} WHERE sku = {1} AND qty >= {0} "
        "RETURNING qty",
        quantity, tx.quote(sku)));
    if (left.empty()) {
      throw out_of_stock{sku};
    }
    return left[0][0].as<int>();
  }

  void transfer(pqxx::transaction_base& tx, const std::string& from,
                const std::string& to, int quantity) {
    take(tx, from, quantity);
    put(tx, to, quantity);
  }

  // Adds some, to an SKU that may be new.
  void put(pqxx::transaction_base& tx, const std::string& sku, int quantity) {
    tx.exec(fmt::format(
        "INSERT INTO inventory (sku, qty) VALUES ({}, {}) "
        "ON CONFLICT (sku) DO UPDATE SET qty = inventory.qty + excluded.qty",
        tx.quote(sku), quantity));
  }

  bool remove(pqxx::transaction_base& tx, const std::string& sku) {
    const auto gone = tx.exec(
        fmt::format("DELETE FROM inventory WHERE sku = {}", tx.quote(sku)));
    return gone.affected_rows() == 1;
  }

  std::string list(pqxx::transaction_base& tx) const {
    return tx
        .exec(
            "SELECT coalesce(string_agg(sku || '=' || qty, ' ' ORDER BY sku), "
            "'nothing') FROM inventory")[0][0]
        .as<std::string>();
  }
};

void prepare(const std::string& url) {
  lastdoor::postgres::migrate_up(url).value();
  {
    pqxx::connection db{url};
    pqxx::work tx{db};
    tx.exec("DROP TABLE IF EXISTS inventory");
    tx.exec(
        "CREATE TABLE inventory (sku text PRIMARY KEY, qty integer NOT NULL)");
    tx.exec("INSERT INTO inventory VALUES ('1001', 5)");
    tx.commit();
  }
  // Optional: now the database refuses what does not go through the wrapper.
  lastdoor::postgres::add_fence(
      url, {.table = "inventory", .guard = lastdoor::guard_mode::strict})
      .value();
}

// What the call was refused with; "applied" if it was not.
template <class Call>
std::string outcome(Call&& call) {
  try {
    call();
    return "applied";
  } catch (const lastdoor::failure& f) {
    return std::string{name_of(f.code())};
  } catch (const inventory_repository::out_of_stock&) {
    return "out of stock";
  } catch (const pqxx::sql_error&) {
    return "refused by the guard";
  }
}

int differences = 0;

void expect(const std::string& what, const std::string& is,
            const std::string& wanted) {
  fmt::print("{:<46} {}\n", what, is);
  differences += is == wanted ? 0 : 1;
}

void tour(const std::string& url) {
  auto locks = lastdoor::open_postgres_locks(url).value();
  auto store = lastdoor::open_postgres_store(url).value();
  lastdoor::gateway door{locks, store};
  inventory_repository repo;

  auto session = door.acquire("inventory", {.ttl = 1min}).value();
  lastdoor::fenced_repository stock{session, repo};

  expect("take 3 of 5, left",
         std::to_string(stock.call(&inventory_repository::take, "1001", 3)),
         "2");
  stock.call(&inventory_repository::transfer, "1001", "2002", 1);
  stock.call(&inventory_repository::put, "2002", 6);
  expect("take 9 of 1",
         outcome([&] { stock.call(&inventory_repository::take, "1001", 9); }),
         "out of stock");
  expect("put and take in one unit, which fails", outcome([&] {
           stock.call([](auto& r, pqxx::transaction_base& tx) {
             r.put(tx, "3003", 1);
             r.take(tx, "1001", 9);
           });
         }),
         "out of stock");
  expect("stock", stock.call(&inventory_repository::list), "1001=1 2002=7");

  // Somebody frees the lock by hand and the next holder comes in. The first
  // one is not told; its own clock says that it still holds the lock.
  locks.release(session.grant()).value();
  auto next = door.acquire("inventory", {.ttl = 1min}).value();
  lastdoor::fenced_repository newer{next, repo};

  expect("the first holder deletes",
         outcome([&] { stock.call(&inventory_repository::remove, "1001"); }),
         "stale_token");
  expect("the first holder inserts a new row",
         outcome([&] { stock.call(&inventory_repository::put, "4004", 1); }),
         "lease_lost");  // it was told by the store, and sends no more
  expect("somebody forgets the wrapper", outcome([&] {
           pqxx::connection db{url};
           pqxx::work tx{db};
           repo.put(tx, "5005", 1);
           tx.commit();
         }),
         "refused by the guard");
  expect("the next holder deletes",
         outcome([&] { newer.call(&inventory_repository::remove, "1001"); }),
         "applied");
  expect("stock", newer.call(&inventory_repository::list), "2002=7");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "example_postgres_repository postgresql://...\n";
    return 2;
  }
  prepare(argv[1]);
  tour(argv[1]);
  return differences == 0 ? 0 : 1;
}

// Stock in Postgres, the lock on a Redis beside it. The Redis keeps sellers
// from getting in each other's way; the Postgres keeps the stock right, also
// when the Redis forgets.
//
//   example_redis_postgres redis://HOST postgresql://USER@HOST/DB
//
// Makes the table inventory there, and lastdoor's own.
#include <fmt/format.h>

#include <iostream>
#include <lastdoor/lastdoor.hpp>
#include <lastdoor/locks/redis.hpp>
#include <lastdoor/migrate.hpp>
#include <lastdoor/stores/postgres.hpp>
#include <pqxx/connection>
#include <pqxx/result>
#include <pqxx/transaction>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using lastdoor::at_least;

namespace {

constexpr int stock_at_first = 100;
constexpr int sellers = 4;
constexpr int sales_each = 10;

void prepare(const std::string& url) {
  lastdoor::postgres::migrate_up(url).value();
  {
    pqxx::connection db{url};
    pqxx::work tx{db};
    tx.exec("DROP TABLE IF EXISTS inventory");
    tx.exec(
        "CREATE TABLE inventory (sku text PRIMARY KEY, qty integer NOT NULL)");
    tx.exec(fmt::format("INSERT INTO inventory VALUES ('1001', {})",
                        stock_at_first));
    tx.commit();
  }
  // From now on the database refuses whoever brings no token.
  lastdoor::postgres::add_fence(
      url, {.table = "inventory", .guard = lastdoor::guard_mode::strict})
      .value();
}

int stock_in(const std::string& url) {
  pqxx::connection db{url};
  pqxx::work tx{db};
  return tx.exec("SELECT qty FROM inventory")[0][0].as<int>();
}

lastdoor::statement one_sold() {
  return lastdoor::update("inventory")
      .key("sku", "1001")
      .subtract("qty", 1)
      .require("qty", at_least(1));
}

using shop_door = lastdoor::gateway<lastdoor::postgres_store>;

// Sells one piece. A sale has a number of its own in its grant, so it counts
// once even if an answer gets lost.
bool sell(shop_door& door) {
  auto session =
      door.acquire("inventory/1001", {.ttl = 30s, .wait_at_most = 2min});
  if (!session) {
    std::cerr << session.error().message() << '\n';
    return false;
  }
  auto sold = session->write(one_sold(), {.sequence = 1});
  if (!sold) {
    std::cerr << sold.error().message() << '\n';
  }
  return sold.has_value();
}

int sell_all(shop_door& door) {
  std::atomic<int> sold{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < sellers; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < sales_each; ++n) {
        sold += sell(door) ? 1 : 0;
      }
    });
  }
  for (auto& t : threads) {
    t.join();
  }
  return sold;
}

// A seller is paused, its lock is given to somebody else, and it wakes up.
// Its own clock still says that it holds the lock.
std::string sell_late(lastdoor::lock_service& locks, shop_door& door) {
  auto paused = door.acquire("inventory/1001", {.ttl = 1min}).value();
  locks.release(paused.grant()).value();
  auto next = door.acquire("inventory/1001", {.ttl = 1min}).value();
  fmt::print("token {} is paused, token {} comes in\n", paused.token().value(),
             next.token().value());
  auto late = paused.write(one_sold());
  return late ? "applied" : std::string{name_of(late.error().code())};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "example_redis_postgres redis://... postgresql://...\n";
    return 2;
  }
  prepare(argv[2]);
  auto locks = lastdoor::open_redis_locks(argv[1]).value();
  auto store = lastdoor::open_postgres_store(argv[2]).value();
  shop_door door{locks, store};

  const int sold = sell_all(door);
  const auto late = sell_late(locks, door);
  const int left = stock_in(argv[2]);
  fmt::print("{} sold, {} left\nthe late sale: {}\n", sold, left, late);
  return sold == sellers * sales_each && left == stock_at_first - sold &&
                 late == "stale_token"
             ? 0
             : 1;
}

#include <fmt/format.h>

#include <lastdoor/lastdoor.hpp>
#include <lastdoor/locks/sqlite.hpp>
#include <lastdoor/stores/sqlite.hpp>

using namespace std::chrono_literals;
using lastdoor::at_least;

int main() {
  auto locks = lastdoor::open_sqlite_locks("locks.db").value();
  auto store = lastdoor::open_sqlite_store("shop.db").value();
  lastdoor::gateway door{locks, store};

  // The lock: one holder at a time, most of the time.
  auto session =
      door.acquire("inventory/sku-1001", {.ttl = 10s, .wait_at_most = 5s})
          .value();

  // The last door: refused if anybody was granted the lock after us.
  auto sold = session.write(lastdoor::update("inventory")
                                .key("sku", "1001")
                                .subtract("qty", 3)
                                .require("qty", at_least(3)));

  fmt::print("token {}: {}\n", session.token().value(),
             sold ? "sold 3" : sold.error().message());
  return sold ? 0 : 1;
}

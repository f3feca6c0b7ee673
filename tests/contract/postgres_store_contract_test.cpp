// The store contract on a private Postgres database.
#include <lastdoor/testing/store_contract.hpp>

#include "support/pg_ledger.hpp"

namespace lastdoor::testing {
namespace {

// Skips every test where there is no Postgres.
struct needs_postgres : ::testing::Environment {
  void SetUp() override { LASTDOOR_NEEDS_POSTGRES(); }
};
[[maybe_unused]] const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new needs_postgres);

struct items_database {
  items_database() {
    db.run("CREATE TABLE items (id text PRIMARY KEY, qty integer, note text)");
    db.fence("items", guard_mode::none);
  }

  std::unique_ptr<store> connect(std::shared_ptr<clock> time = boot_clock()) {
    postgres_store_options options;
    options.time = std::move(time);
    return std::make_unique<postgres_store>(db.open(options));
  }

  std::optional<item> read(std::string_view id) {
    const auto found = db.query(
        "SELECT id, qty, coalesce(note, ''), "
        "fence_token FROM items WHERE id = '" +
        std::string{id} + "'");
    if (found.empty()) {
      return std::nullopt;
    }
    const auto& r = found.front();
    return item{r[0], std::stoll(r[1]), r[2], std::stoll(r[3])};
  }

  void put(const item& i) {
    db.run("INSERT INTO items (id, qty, note) VALUES ('" + i.id + "', " +
           std::to_string(i.qty) + ", '" + i.note + "')");
  }

  support::ledger_database db;
};

}  // namespace
}  // namespace lastdoor::testing

LASTDOOR_STORE_CONTRACT(postgres, items_database);

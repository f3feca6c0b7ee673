// The store contract on an SQLite file.
#include <lastdoor/testing/store_contract.hpp>

#include "support/sqlite_file.hpp"

namespace lastdoor::testing {
namespace {

struct items_file : sqlite_file {
  items_file() {
    table("CREATE TABLE items (id TEXT PRIMARY KEY, qty INTEGER, note TEXT)",
          {.table = "items"});
  }

  std::unique_ptr<store> connect(std::shared_ptr<clock> time = boot_clock()) {
    sqlite_store_options options;
    options.time = std::move(time);
    options.on_open = [](sqlite3* db) -> result<void> {  // no power cuts here
      sqlite3_exec(db, "PRAGMA synchronous=OFF", nullptr, nullptr, nullptr);
      return {};
    };
    return std::make_unique<sqlite_store>(open(std::move(options)));
  }

  std::optional<item> read(std::string_view id) {
    auto db = plain();
    auto s = db.prepare("SELECT * FROM items WHERE id = ?1");
    if (!s.bind(1, id).step("").value())
      return std::nullopt;
    return item{s.text(0), s.integer(1), s.text(2), s.integer(3)};
  }

  void put(const item& i) {
    auto db = plain();
    auto s = db.prepare("INSERT INTO items (id, qty, note) VALUES (?, ?, ?)");
    s.bind(1, value{i.id}).bind(2, i.qty).bind(3, value{i.note});
    s.run("").value();
  }
};

}  // namespace
}  // namespace lastdoor::testing

LASTDOOR_STORE_CONTRACT(sqlite, items_file);

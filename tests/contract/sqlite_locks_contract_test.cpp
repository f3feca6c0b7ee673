// The lock contract on leases in an SQLite file.
#include <lastdoor/locks/sqlite.hpp>
#include <lastdoor/testing/lock_contract.hpp>

namespace {

struct sqlite_file {
  lastdoor::testing::temp_folder folder;

  [[nodiscard]] std::unique_ptr<lastdoor::lock_backend> connect() const {
    return lastdoor::open_sqlite_backend(folder / "locks.db").value();
  }
};

}  // namespace

LASTDOOR_LOCK_CONTRACT(sqlite, sqlite_file);

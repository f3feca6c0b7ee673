// sqlite_file.hpp: a private SQLite file for a test, and plain access to it.
//
// Nothing stays open between calls, so that a test may fork.
#pragma once

#include <sqlite3.h>

#include <lastdoor/migrate.hpp>
#include <lastdoor/stores/sqlite.hpp>
#include <lastdoor/testing/processes.hpp>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "drivers/sqlite.hpp"

namespace lastdoor::testing {

// A connection that knows nothing of lastdoor.
class plain_sqlite {
 public:
  explicit plain_sqlite(const std::string& path)
      : db_{sqlite_driver::connection::open(path,
                                            sqlite_driver::open_mode::existing)
                .value()} {}

  [[nodiscard]] sqlite3* raw() { return db_.raw(); }

  // Runs it; "" or what SQLite says against it.
  std::string run(const std::string& sql) {
    auto ok = db_.exec(sql, "");
    return ok ? std::string{} : ok.error().text().substr(2);
  }
  // Throws when SQLite says anything against it.
  void must(const std::string& sql) { db_.exec(sql, sql).value(); }

  [[nodiscard]] sqlite_driver::statement prepare(const std::string& sql) {
    return db_.prepare(sql, sql).value();
  }

  // All rows, each as its values joined by '|'.
  [[nodiscard]] std::vector<std::string> rows(const std::string& sql) {
    std::vector<std::string> all;
    auto s = db_.prepare(sql, sql).value();
    while (s.step(sql).value()) {
      std::string line;
      for (int i = 0; i < s.columns(); ++i) {
        line += (i == 0 ? "" : "|") + (s.is_null(i) ? "NULL" : s.text(i));
      }
      all.push_back(line);
    }
    return all;
  }
  // The one value of a query of one row.
  [[nodiscard]] std::string one(const std::string& sql) {
    const auto all = rows(sql);
    if (all.size() != 1) {
      throw std::runtime_error{sql + ": not one row"};
    }
    return all[0];
  }

 private:
  sqlite_driver::connection db_;
};

// A file with lastdoor's tables.
struct sqlite_file {
  temp_folder folder;
  std::string path{folder / "test.db"};

  sqlite_file() { sqlite::migrate_up(path).value(); }

  [[nodiscard]] plain_sqlite plain() const { return plain_sqlite{path}; }

  // Makes a table and fences it.
  void table(const std::string& sql, const fence_request& fence) const {
    plain().must(sql);
    static_cast<void>(sqlite::add_fence(path, fence).value());
  }

  [[nodiscard]] sqlite_store open(sqlite_store_options options = {}) const {
    return open_sqlite_store(path, std::move(options)).value();
  }
};

}  // namespace lastdoor::testing

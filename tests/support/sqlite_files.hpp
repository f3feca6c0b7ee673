// sqlite_files.hpp: looking into SQLite files, and spoiling them.
#pragma once

#include <sqlite3.h>
#include <lastdoor/testing/processes.hpp>

#include <fstream>
#include <stdexcept>
#include <string>

namespace lastdoor::testing {

// A plain connection, as any other program has. Throws std::runtime_error.
class raw_sqlite {
 public:
  explicit raw_sqlite(const std::string& path) {
    if (sqlite3_open(path.c_str(), &db_) != SQLITE_OK) {
      throw std::runtime_error{path + ": " + sqlite3_errmsg(db_)};
    }
    sqlite3_busy_timeout(db_, 10'000);
  }
  raw_sqlite(const raw_sqlite&) = delete;
  raw_sqlite& operator=(const raw_sqlite&) = delete;
  ~raw_sqlite() { sqlite3_close_v2(db_); }

  void run(const std::string& sql) {
    char* text = nullptr;
    if (sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, &text) != SQLITE_OK) {
      const std::string why = text != nullptr ? text : "unknown";
      sqlite3_free(text);
      throw std::runtime_error{sql + ": " + why};
    }
  }

  // All rows and columns as text, with a '|' after each value.
  std::string text(const std::string& sql) {
    std::string all;
    const auto add = [](void* to, int n, char** values, char**) {
      for (int i = 0; i < n; ++i) {
        *static_cast<std::string*>(to) +=
            std::string{values[i] != nullptr ? values[i] : "NULL"} + "|";
      }
      return 0;
    };
    if (sqlite3_exec(db_, sql.c_str(), add, &all, nullptr) != SQLITE_OK) {
      throw std::runtime_error{sql + ": " + sqlite3_errmsg(db_)};
    }
    return all;
  }

  [[nodiscard]] sqlite3* get() noexcept { return db_; }

 private:
  sqlite3* db_{nullptr};
};

// Every object of the file and what made it.
inline std::string schema_dump(const std::string& path) {
  return raw_sqlite{path}.text(
      "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY 1, 2");
}

// All of the file but when the migrations were applied.
inline std::string whole_dump(const std::string& path) {
  return schema_dump(path) + raw_sqlite{path}.text(
                                 "SELECT version, name, checksum "
                                 "FROM lastdoor_migrations ORDER BY 1");
}

// Overwrites bytes of a file that nobody has open.
inline void scribble(const std::string& path, std::streamoff at,
                     std::size_t bytes) {
  std::fstream file{path, std::ios::in | std::ios::out | std::ios::binary};
  file.seekp(at);
  file << std::string(bytes, '\xA5');
}

}  // namespace lastdoor::testing

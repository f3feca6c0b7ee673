// sqlite_table.hpp: what a table is made of, as far as a fence cares.
//
// Thread safety: as the connection.
#pragma once

#include <lastdoor/errors.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/sqlite.hpp"

namespace lastdoor::sqlite {

enum class table_kind : std::uint8_t {
  absent,
  table,
  view,
  virtual_table,
  shadow,  // belongs to a virtual table
};

struct table_column {
  std::string name;
  std::string type;  // as declared; may be empty
  std::string collation;
  bool not_null{false};
  bool generated{false};
  std::optional<std::string> default_sql;
};

struct key_column {
  std::string name;  // empty: an expression
  std::string collation;
};

// A set of columns of which the database keeps the values apart.
struct unique_key {
  std::string index;  // empty: the row id itself
  std::vector<key_column> columns;
  // The condition of a partial index, as SQL; empty when it is whole.
  std::string predicate;
  bool primary{false};
  [[nodiscard]] bool has_expression() const noexcept;
};

struct table_info {
  table_kind kind{table_kind::absent};
  std::string name;  // as it was created
  bool without_rowid{false};
  std::vector<table_column> columns;
  std::vector<unique_key> keys;
  // A name that means the row id and no column; empty when there is none.
  std::string rowid;
  // What names a row for good: the primary key, else the row id.
  std::vector<key_column> identity;

  [[nodiscard]] const table_column* find(std::string_view column) const;
  // True when equality of these columns is true of one row at most.
  [[nodiscard]] bool names_one_row(
      const std::vector<std::string_view>& columns) const;
};

// Looks in the file itself (schema main). A table that is not there is an
// answer, not an error.
[[nodiscard]] result<table_info> inspect_table(sqlite_driver::connection& db,
                                               std::string_view table);

// True for names that are SQLite's or lastdoor's own.
[[nodiscard]] bool reserved_name(std::string_view table) noexcept;

// SQLite's rules of affinity: what a column of this declared type does to an
// integer. `integral_type` is true for INTEGER affinity; `keeps_integers` also
// for columns that take integers as they are, such as those without a type.
[[nodiscard]] bool integral_type(std::string_view type) noexcept;
[[nodiscard]] bool keeps_integers(std::string_view type) noexcept;

// The text after WHERE in a CREATE INDEX; empty when there is none.
[[nodiscard]] std::string_view index_predicate(std::string_view sql) noexcept;

}  // namespace lastdoor::sqlite

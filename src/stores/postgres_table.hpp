// postgres_table.hpp: what a relation is, as far as a fence cares.
//
// A name is resolved once, to one object id; everything after that asks for
// the id, so that a session's search_path cannot mean two tables in a row.
//
// Thread safety: as the connection.
#pragma once

#include <cstdint>
#include <lastdoor/errors.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/postgres.hpp"

namespace lastdoor::postgres {

enum class relation_kind : std::uint8_t {
  absent,
  table,
  partitioned,
  view,
  foreign,
  other,  // index, sequence, type, TOAST
};

struct relation {
  relation_kind kind{relation_kind::absent};
  std::int64_t oid{0};
  std::string schema;
  std::string name;
  bool temporary{false};
  bool unlogged{false};
  // The table it is a partition of; 0: of none.
  std::int64_t parent{0};
  // Tables that inherit from it in the old way; their rows are part of it.
  bool has_heirs{false};

  // "schema"."name", quoted.
  [[nodiscard]] std::string sql() const;
  // schema.name (oid 4711), for people.
  [[nodiscard]] std::string shown() const;
};

// `schema` empty: by the session's search_path. An absent one is an answer.
[[nodiscard]] result<relation> find_relation(postgres_driver::connection& db,
                                             std::string_view schema,
                                             std::string_view name,
                                             time_point deadline);

struct table_column {
  std::string type;  // as Postgres writes it: bigint
  bool not_null{false};
  bool generated{false};  // also: identity
  std::string default_sql;
};
[[nodiscard]] result<std::optional<table_column>> find_column(
    postgres_driver::connection& db, std::int64_t table,
    std::string_view column, time_point deadline);

struct unique_key {
  std::vector<std::string> columns;
  bool primary{false};
};
// Keys by which equality of all columns is true of one row at most: valid,
// checked at once, whole, of plain columns with ordinary equality.
[[nodiscard]] result<std::vector<unique_key>> find_keys(
    postgres_driver::connection& db, std::int64_t table, time_point deadline);

// True for names that are Postgres's or lastdoor's own.
[[nodiscard]] bool reserved_schema(std::string_view schema) noexcept;

}  // namespace lastdoor::postgres

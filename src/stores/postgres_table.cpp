#include "postgres_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lastdoor::postgres {

namespace {

using postgres_driver::answer;
using postgres_driver::arguments;
using postgres_driver::connection;
using postgres_driver::effect;
using postgres_driver::quoted_name;

constexpr std::string_view looking = "looking at the table";

// c.oid::bigint: an oid is printed without a sign and may be above 2^31.
constexpr std::string_view relation_sql =
    "SELECT c.oid::bigint, n.nspname, c.relname, c.relkind, "
    "c.relpersistence, "
    "CASE WHEN c.relispartition THEN (SELECT i.inhparent::bigint "
    "FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid) END, "
    "c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits i "
    "WHERE i.inhparent = c.oid) "
    "FROM pg_catalog.pg_class c "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE c.relname = $2 AND CASE WHEN $1 = '' "
    "THEN c.oid = pg_catalog.to_regclass(pg_catalog.quote_ident($2)) "
    "ELSE n.nspname = $1 END";

constexpr std::string_view column_sql =
    "SELECT pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, "
    "a.attgenerated <> '' OR a.attidentity <> '', "
    "coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '') "
    "FROM pg_catalog.pg_attribute a "
    "LEFT JOIN pg_catalog.pg_attrdef d "
    "ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
    "WHERE a.attrelid = $1::bigint::oid AND a.attname = $2 "
    "AND a.attnum > 0 AND NOT a.attisdropped";

// A collation that calls different texts equal lets one comparison find
// several rows of a key that keeps them apart by another collation.
constexpr std::string_view keys_sql =
    "SELECT i.indexrelid::bigint, i.indisprimary, a.attname "
    "FROM pg_catalog.pg_index i "
    "CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::int2[]) "
    "WITH ORDINALITY AS k(attnum, place) "
    "JOIN pg_catalog.pg_attribute a "
    "ON a.attrelid = i.indrelid AND a.attnum = k.attnum "
    "WHERE i.indrelid = $1::bigint::oid AND i.indisunique "
    "AND i.indisvalid AND i.indisready AND i.indislive AND i.indimmediate "
    "AND i.indpred IS NULL AND i.indexprs IS NULL "
    "AND k.place <= i.indnkeyatts "
    "AND NOT EXISTS (SELECT FROM pg_catalog.unnest(i.indkey::int2[]) "
    "AS u(attnum) JOIN pg_catalog.pg_attribute b "
    "ON b.attrelid = i.indrelid AND b.attnum = u.attnum "
    "JOIN pg_catalog.pg_collation l ON l.oid = b.attcollation "
    "WHERE NOT l.collisdeterministic) "
    "ORDER BY i.indisprimary DESC, i.indexrelid, k.place";

relation_kind kind_of(std::string_view relkind) {
  if (relkind == "r") {
    return relation_kind::table;
  }
  if (relkind == "p") {
    return relation_kind::partitioned;
  }
  if (relkind == "v" || relkind == "m") {
    return relation_kind::view;
  }
  return relkind == "f" ? relation_kind::foreign : relation_kind::other;
}

}  // namespace

std::string relation::sql() const {
  return quoted_name(schema) + "." + quoted_name(name);
}

std::string relation::shown() const {
  return fmt::format("{} (oid {})", sql(), oid);
}

result<relation> find_relation(connection& db, std::string_view schema,
                               std::string_view name, time_point deadline) {
  auto rows = db.run({relation_sql, looking, effect::reads, deadline},
                     arguments{}.add(schema).add(name));
  if (!rows) {
    return rows.error();
  }
  relation out;
  if (rows->empty()) {
    return out;
  }
  out.oid = rows->integer(0, 0);
  out.schema = rows->text(0, 1);
  out.name = rows->text(0, 2);
  out.kind = kind_of(rows->text(0, 3));
  out.temporary = rows->text(0, 4) == "t";
  out.unlogged = rows->text(0, 4) == "u";
  out.parent = rows->integer(0, 5);
  out.has_heirs = rows->truth(0, 6);
  return out;
}

result<std::optional<table_column>> find_column(connection& db,
                                                std::int64_t table,
                                                std::string_view column,
                                                time_point deadline) {
  auto rows = db.run({column_sql, looking, effect::reads, deadline},
                     arguments{}.add(table).add(column));
  if (!rows) {
    return rows.error();
  }
  if (rows->empty()) {
    return std::optional<table_column>{};
  }
  return std::optional{table_column{std::string{rows->text(0, 0)},
                                    rows->truth(0, 1), rows->truth(0, 2),
                                    std::string{rows->text(0, 3)}}};
}

result<std::vector<unique_key>> find_keys(connection& db, std::int64_t table,
                                          time_point deadline) {
  auto rows = db.run({keys_sql, looking, effect::reads, deadline},
                     arguments{}.add(table));
  if (!rows) {
    return rows.error();
  }
  std::vector<unique_key> keys;
  std::int64_t last = 0;
  for (int i = 0; i < rows->rows(); ++i) {
    if (rows->integer(i, 0) != last) {
      last = rows->integer(i, 0);
      keys.push_back({{}, rows->truth(i, 1)});
    }
    keys.back().columns.emplace_back(rows->text(i, 2));
  }
  return keys;
}

bool reserved_schema(std::string_view schema) noexcept {
  return schema.starts_with("pg_") || schema == "information_schema" ||
         schema == "lastdoor";
}

}  // namespace lastdoor::postgres

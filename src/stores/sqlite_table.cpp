#include "sqlite_table.hpp"

#include <algorithm>

#include "fencing/render.hpp"

namespace lastdoor::sqlite {

namespace {

using sqlite_driver::connection;
using sqlite_driver::statement;

constexpr std::string_view doing = "looking at the table";

bool same(std::string_view a, std::string_view b) noexcept {
  return fencing::same_name(a, b, fencing::dialect::sqlite);
}

bool mentions(std::string_view type, std::string_view word) noexcept {
  for (std::size_t i = 0; i + word.size() <= type.size(); ++i) {
    if (same(type.substr(i, word.size()), word)) {
      return true;
    }
  }
  return false;
}

// Runs a query with one text parameter and hands each row to `take`.
template <class Take>
result<void> each_row(connection& db, std::string_view sql,
                      std::string_view parameter, Take take) {
  auto query = db.prepare(sql, doing);
  if (!query) {
    return query.error();
  }
  query->bind(1, parameter);
  for (;;) {
    auto more = query->step(doing);
    if (!more) {
      return more.error();
    }
    if (!*more) {
      return {};
    }
    take(*query);
  }
}

table_kind kind_of(std::string_view type) {
  if (type == "table") {
    return table_kind::table;
  }
  if (type == "view") {
    return table_kind::view;
  }
  return type == "shadow" ? table_kind::shadow : table_kind::virtual_table;
}

result<void> read_kind(connection& db, std::string_view table,
                       table_info& out) {
  return each_row(db,
                  "SELECT name, type, wr FROM pragma_table_list(?1) "
                  "WHERE schema = 'main'",
                  table, [&](const statement& row) {
                    out.name = row.text(0);
                    out.kind = kind_of(row.view(1));
                    out.without_rowid = row.integer(2) != 0;
                  });
}

std::string collation_of(connection& db, const std::string& table,
                         const std::string& column) {
  const char* collation = nullptr;
  const int rc = sqlite3_table_column_metadata(
      db.raw(), "main", table.c_str(), column.c_str(), nullptr, &collation,
      nullptr, nullptr, nullptr);
  return rc == SQLITE_OK && collation != nullptr ? collation : "BINARY";
}

struct primary_column {
  std::int64_t position;
  std::string name;
  std::string type;
};

result<std::vector<primary_column>> read_columns(connection& db,
                                                 table_info& out) {
  std::vector<primary_column> primary;
  auto ok = each_row(db,
                     "SELECT name, type, \"notnull\", dflt_value, pk, hidden "
                     "FROM pragma_table_xinfo(?1, 'main')",
                     out.name, [&](const statement& row) {
                       table_column c;
                       c.name = row.text(0);
                       c.type = row.text(1);
                       c.not_null = row.integer(2) != 0;
                       if (!row.is_null(3)) {
                         c.default_sql = row.text(3);
                       }
                       if (row.integer(4) > 0) {
                         primary.push_back({row.integer(4), c.name, c.type});
                       }
                       c.generated = row.integer(5) >= 2;
                       out.columns.push_back(std::move(c));
                     });
  if (!ok) {
    return ok.error();
  }
  for (auto& c : out.columns) {
    c.collation = collation_of(db, out.name, c.name);
  }
  std::sort(primary.begin(), primary.end(), [](const auto& a, const auto& b) {
    return a.position < b.position;
  });
  return primary;
}

result<void> read_index_columns(connection& db, unique_key& key) {
  return each_row(
      db,
      "SELECT cid, name, coll FROM pragma_index_xinfo(?1, 'main') "
      "WHERE key = 1 ORDER BY seqno",
      key.index, [&](const statement& row) {
        key.columns.push_back(
            {row.integer(0) >= 0 ? row.text(1) : std::string{}, row.text(2)});
      });
}

result<void> read_predicate(connection& db, unique_key& key) {
  return each_row(db,
                  "SELECT sql FROM main.sqlite_schema "
                  "WHERE type = 'index' AND name = ?1",
                  key.index, [&](const statement& row) {
                    key.predicate = std::string{index_predicate(row.view(0))};
                  });
}

result<void> read_indexes(connection& db, table_info& out) {
  std::vector<bool> partial;
  auto ok = each_row(
      db,
      "SELECT name, origin, partial FROM pragma_index_list(?1, 'main') "
      "WHERE \"unique\" = 1 ORDER BY seq",
      out.name, [&](const statement& row) {
        unique_key key;
        key.index = row.text(0);
        key.primary = row.view(1) == "pk";
        out.keys.push_back(std::move(key));
        partial.push_back(row.integer(2) != 0);
      });
  for (std::size_t i = 0; ok && i < out.keys.size(); ++i) {
    ok = read_index_columns(db, out.keys[i]);
    if (ok && partial[i]) {
      ok = read_predicate(db, out.keys[i]);
    }
  }
  return ok;
}

// The name by which the row id can be reached, if any.
std::string free_rowid_name(const table_info& t) {
  for (const char* name : {"rowid", "_rowid_", "oid"}) {
    if (t.find(name) == nullptr) {
      return name;
    }
  }
  return {};
}

void add_rowid(table_info& t, const std::vector<primary_column>& primary) {
  const bool indexed = std::any_of(t.keys.begin(), t.keys.end(),
                                   [](const auto& k) { return k.primary; });
  if (!t.without_rowid) {
    t.rowid = free_rowid_name(t);
    // An INTEGER PRIMARY KEY that needs no index is the row id.
    const bool alias =
        primary.size() == 1 && !indexed && same(primary[0].type, "INTEGER");
    const std::string name = alias ? primary[0].name : t.rowid;
    if (!name.empty()) {
      t.keys.insert(t.keys.begin(),
                    unique_key{"", {{name, "BINARY"}}, "", alias});
    }
  }
  for (const auto& k : t.keys) {
    if (k.primary) {
      t.identity = k.columns;
      return;
    }
  }
  if (!t.rowid.empty()) {
    t.identity = {{t.rowid, "BINARY"}};
  }
}

// Past a quoted part, a comment or one character.
std::size_t skip_token(std::string_view sql, std::size_t at) noexcept {
  const char c = sql[at];
  if (c == '\'' || c == '"' || c == '`' || c == '[') {
    const char end = c == '[' ? ']' : c;
    const auto close = sql.find(end, at + 1);
    return close == std::string_view::npos ? sql.size() : close + 1;
  }
  if (sql.substr(at, 2) == "--") {
    const auto close = sql.find('\n', at);
    return close == std::string_view::npos ? sql.size() : close + 1;
  }
  if (sql.substr(at, 2) == "/*") {
    const auto close = sql.find("*/", at + 2);
    return close == std::string_view::npos ? sql.size() : close + 2;
  }
  return at + 1;
}

bool word_character(char c) noexcept {
  const auto b = static_cast<unsigned char>(c);
  return (b >= '0' && b <= '9') || (b >= 'A' && b <= 'Z') ||
         (b >= 'a' && b <= 'z') || b == '_' || b == '$' || b >= 0x80;
}

}  // namespace

bool unique_key::has_expression() const noexcept {
  return std::any_of(columns.begin(), columns.end(),
                     [](const auto& c) { return c.name.empty(); });
}

const table_column* table_info::find(std::string_view column) const {
  for (const auto& c : columns) {
    if (same(c.name, column)) {
      return &c;
    }
  }
  return nullptr;
}

bool table_info::names_one_row(
    const std::vector<std::string_view>& named) const {
  const auto covered = [&](const key_column& k) {
    if (std::none_of(named.begin(), named.end(),
                     [&](auto n) { return same(n, k.name); })) {
      return false;
    }
    // The comparison uses the column's collation. It must not find more
    // equal than the index keeps apart; BINARY never does.
    const auto* c = find(k.name);
    return c == nullptr || same(c->collation, "BINARY") ||
           same(c->collation, k.collation);
  };
  return std::any_of(keys.begin(), keys.end(), [&](const auto& key) {
    return key.predicate.empty() && !key.has_expression() &&
           std::all_of(key.columns.begin(), key.columns.end(), covered);
  });
}

std::string_view index_predicate(std::string_view sql) noexcept {
  int depth = 0;
  for (std::size_t at = 0; at < sql.size();) {
    const char c = sql[at];
    if (word_character(c)) {
      std::size_t end = at;
      while (end < sql.size() && word_character(sql[end])) {
        ++end;
      }
      if (depth == 0 && same(sql.substr(at, end - at), "where")) {
        return sql.substr(end);
      }
      at = end;
      continue;
    }
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    at = skip_token(sql, at);
  }
  return {};
}

bool integral_type(std::string_view type) noexcept {
  return mentions(type, "int");
}

bool keeps_integers(std::string_view type) noexcept {
  if (integral_type(type) || type.empty() || mentions(type, "blob")) {
    return true;
  }
  for (const char* other : {"char", "clob", "text", "real", "floa", "doub"}) {
    if (mentions(type, other)) {
      return false;
    }
  }
  return true;  // NUMERIC
}

bool reserved_name(std::string_view table) noexcept {
  const auto starts = [&](std::string_view prefix) {
    return same(table.substr(0, prefix.size()), prefix);
  };
  return starts("sqlite_") || starts("lastdoor_");
}

result<table_info> inspect_table(connection& db, std::string_view table) {
  table_info out;
  if (auto ok = read_kind(db, table, out); !ok) {
    return ok.error();
  }
  if (out.kind != table_kind::table) {
    return out;
  }
  auto primary = read_columns(db, out);
  if (!primary) {
    return primary.error();
  }
  if (auto ok = read_indexes(db, out); !ok) {
    return ok.error();
  }
  add_rowid(out, *primary);
  return out;
}

}  // namespace lastdoor::sqlite

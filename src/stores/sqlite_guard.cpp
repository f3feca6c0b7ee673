#include "sqlite_guard.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fencing/render.hpp"
#include "fencing/text.hpp"
#include "stores/migration_plan.hpp"
#include "stores/sqlite_migrate.hpp"

namespace lastdoor::sqlite {

namespace {

using sqlite_driver::connection;
using sqlite_driver::open_mode;
using sqlite_driver::quoted_name;
using sqlite_driver::transaction;

constexpr std::string_view planning = "planning the fence";

bool same(std::string_view a, std::string_view b) {
  return fencing::same_name(a, b, fencing::dialect::sqlite);
}

error refuse(std::string why) {
  return fail(errc::invalid_argument, std::move(why));
}

result<void> check_request(const fence_request& r) {
  for (const auto* name : {&r.table, &r.column}) {
    if (name->empty() || name->find('\0') != std::string::npos ||
        !valid_utf8(*name)) {
      return refuse("table and column need names, in UTF-8");
    }
  }
  if (same(r.schema, "temp")) {
    return refuse(
        "a temporary table is seen by one connection only and "
        "needs no fence");
  }
  if (!r.schema.empty() && !same(r.schema, "main")) {
    return refuse(
        fmt::format("the schema '{}' is another file; fence its "
                    "tables there",
                    r.schema));
  }
  if (reserved_name(r.table)) {
    return refuse(fmt::format("'{}' is not a table of yours", r.table));
  }
  return {};
}

result<void> check_kind(const table_info& t, const fence_request& r) {
  switch (t.kind) {
    case table_kind::table:
      break;
    case table_kind::absent:
      return fail(errc::missing,
                  fmt::format("there is no table '{}' in the file", r.table));
    case table_kind::view:
      return refuse(
          fmt::format("'{}' is a view; fence the tables under it", r.table));
    case table_kind::virtual_table:
    case table_kind::shadow:
      return refuse(
          fmt::format("'{}' is a virtual table or belongs to one, "
                      "and takes no triggers",
                      r.table));
  }
  if (r.guard != guard_mode::none &&
      (same(t.name, "new") || same(t.name, "old"))) {
    return refuse(
        "in a trigger the names 'new' and 'old' mean rows, so a "
        "table of that name cannot be guarded");
  }
  return {};
}

// A guard has to find again the row that was written.
bool has_address(const table_info& t) {
  if (t.without_rowid || !t.rowid.empty()) {
    return true;
  }
  return !t.identity.empty() &&
         std::all_of(t.identity.begin(), t.identity.end(), [&](const auto& k) {
           const auto* c = t.find(k.name);
           return c != nullptr && (c->not_null || t.keys[0].index.empty());
         });
}

result<void> check_keys(const table_info& t, const fence_request& r) {
  if (r.guard != guard_mode::none && !has_address(t)) {
    return fail(
        errc::schema_mismatch,
        fmt::format("columns of '{}' are called rowid, oid and _rowid_, "
                    "and it has no primary key that is NOT NULL, so a "
                    "guard could not tell its rows apart; give it a "
                    "primary key or rename one of them",
                    t.name));
  }
  for (const auto& key : t.keys) {
    for (const auto& c : key.columns) {
      if (same(c.name, r.column)) {
        return refuse(
            fmt::format("'{}' is part of a key of '{}'", r.column, t.name));
      }
    }
    if (r.guard != guard_mode::none && key.has_expression()) {
      return fail(errc::schema_mismatch,
                  fmt::format("the unique index '{}' is over an expression; a "
                              "guard cannot tell which row a REPLACE would "
                              "take by it. Index a generated column instead",
                              key.index));
    }
  }
  return {};
}

result<void> check_contents(connection& db, const table_info& t,
                            const std::string& fence) {
  auto find = db.prepare(
      fmt::format("SELECT 1 FROM main.{0} WHERE typeof({0}.{1}) <> 'integer' "
                  "OR {0}.{1} NOT BETWEEN 0 AND {2} LIMIT 1",
                  quoted_name(t.name), quoted_name(fence), fencing_token::max),
      planning);
  if (!find) {
    return find.error();
  }
  auto there = find->step(planning);
  if (!there) {
    return there.error();
  }
  if (*there) {
    return fail(errc::schema_mismatch,
                fmt::format("the column '{}' of '{}' holds values that are no "
                            "tokens; set them to 0 first",
                            fence, t.name));
  }
  return {};
}

result<void> check_column(connection& db, const table_info& t,
                          const table_column& c) {
  const auto mismatch = [&](std::string_view what) -> error {
    return fail(errc::schema_mismatch,
                fmt::format("the column '{}' of '{}' {}; a fence is INTEGER "
                            "NOT NULL DEFAULT 0. Name another column, or "
                            "rebuild the table",
                            c.name, t.name, what));
  };
  if (c.generated) {
    return mismatch("is generated");
  }
  if (!integral_type(c.type)) {
    return mismatch(c.type.empty() ? "has no type"
                                   : fmt::format("is {}", c.type));
  }
  if (!c.not_null) {
    return mismatch("may be NULL, which is neither above nor below a token");
  }
  if (!c.default_sql || *c.default_sql != "0") {
    return mismatch(c.default_sql
                        ? fmt::format("has the default {}", *c.default_sql)
                        : "has no default, so an insert would have to name it");
  }
  return check_contents(db, t, c.name);
}

struct present_trigger {
  std::string name;
  std::string sql;
};

result<std::vector<present_trigger>> guards_on(connection& db,
                                               std::string_view table) {
  auto find = db.prepare(
      "SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger' "
      "AND name GLOB 'lastdoor_guard_*' AND tbl_name = ?1 COLLATE NOCASE "
      "ORDER BY name",
      planning);
  if (!find) {
    return find.error();
  }
  find->bind(1, table);
  std::vector<present_trigger> found;
  for (;;) {
    auto more = find->step(planning);
    if (!more) {
      return more.error();
    }
    if (!*more) {
      return found;
    }
    found.push_back({find->text(0), find->text(1)});
  }
}

// A guard goes on with the fences that are there. Under another name they
// would start at 0 again.
result<void> check_guarded_column(const std::vector<present_trigger>& present,
                                  const table_info& t, const fence_request& r) {
  for (const auto& c : t.columns) {
    if (same(c.name, r.column)) {
      continue;
    }
    const auto uses = fmt::format("WHEN new.{} IS NOT", quoted_name(c.name));
    for (const auto& p : present) {
      if (p.sql.find(uses) != std::string::npos) {
        return fail(errc::schema_mismatch,
                    fmt::format("the guard of '{}' keeps its tokens in the "
                                "column '{}', not in '{}'; name that column",
                                t.name, c.name, r.column));
      }
    }
  }
  return {};
}

bool listed(const std::vector<guard_trigger>& all, std::string_view name,
            std::string_view sql) {
  return std::any_of(all.begin(), all.end(), [&](const auto& t) {
    return t.name == name && t.sql == sql;
  });
}

// Drops what is there and not wanted, makes what is wanted and not there.
void plan_guard(const std::vector<present_trigger>& present,
                const std::vector<guard_trigger>& wanted, fence_plan& plan) {
  for (const auto& p : present) {
    if (!listed(wanted, p.name, p.sql)) {
      plan.statements.push_back(
          fmt::format("DROP TRIGGER main.{}", quoted_name(p.name)));
    }
  }
  for (const auto& w : wanted) {
    const bool there = std::any_of(
        present.begin(), present.end(),
        [&](const auto& p) { return p.name == w.name && p.sql == w.sql; });
    if (!there) {
      plan.statements.push_back(w.sql);
    }
  }
}

void note_column(const table_info& t, fence_plan& plan) {
  plan.notes.push_back(fmt::format(
      "an INSERT INTO {} without a list of columns has one value too few "
      "afterwards",
      quoted_name(t.name)));
  plan.notes.push_back(
      "adding the column reads the whole table once, to check it; no row is "
      "rewritten");
}

void note_guard(const table_info& t, guard_mode mode, bool had_guard,
                fence_plan& plan) {
  switch (mode) {
    case guard_mode::none:
      if (had_guard) {
        plan.notes.push_back(fmt::format(
            "this takes the guard off {}; any program can write to it again",
            quoted_name(t.name)));
      }
      return;
    case guard_mode::audit:
      plan.notes.push_back(
          "audit refuses nothing; what strict would refuse is recorded in "
          "lastdoor_audit, which grows until someone empties it");
      break;
    case guard_mode::strict:
      plan.notes.push_back(fmt::format(
          "from then on every write to {} must present a token, those of "
          "shells, scripts and foreign keys with ON DELETE or ON UPDATE "
          "actions included",
          quoted_name(t.name)));
      break;
  }
  plan.notes.push_back(
      "the guard writes the token into a row after the row was written; "
      "update triggers of your own fire for that too");
  plan.notes.push_back(
      "run this again after a unique index was added or dropped: the guard "
      "looks for rows in the way by every key there is");
}

std::string squeezed(std::string_view sql) {
  std::string out;
  for (const char c : sql) {
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
      out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  return out;
}

// RAISE(IGNORE) after a write keeps the write and skips the triggers that
// would have come, the stamp of the guard among them.
result<void> note_skippers(connection& db, const std::string& table,
                           std::vector<std::string>& found) {
  auto find = db.prepare(
      "SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger' "
      "AND name NOT GLOB 'lastdoor_guard_*' AND tbl_name = ?1 COLLATE NOCASE "
      "ORDER BY name",
      planning);
  if (!find) {
    return find.error();
  }
  find->bind(1, std::string_view{table});
  for (;;) {
    auto more = find->step(planning);
    if (!more) {
      return more.error();
    }
    if (!*more) {
      return {};
    }
    const auto sql = squeezed(find->view(1));
    if (sql.find("after") != std::string::npos &&
        sql.find("raise(ignore)") != std::string::npos) {
      found.push_back(fmt::format(
          "the trigger '{}' of table {} says RAISE(IGNORE) after a write, "
          "which can keep the guard from putting the token into the row: "
          "make it a BEFORE trigger, or let it raise another way",
          find->text(0), table));
    }
  }
}

result<bool> matches_release(connection& db, const std::string& table) {
  auto present = guards_on(db, table);
  if (!present) {
    return present.error();
  }
  auto t = inspect_table(db, table);
  if (!t) {
    return t.error();
  }
  // The fence column is not written down anywhere but in the triggers.
  for (const auto& c : t->columns) {
    for (const auto mode : {guard_mode::strict, guard_mode::audit}) {
      const auto wanted = guard_triggers(*t, c.name, mode);
      fence_plan difference;
      plan_guard(*present, wanted, difference);
      if (difference.statements.empty()) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

result<fence_plan> make_plan(connection& db, const fence_request& asked) {
  auto r = asked;
  r.guard = asked.guard.value_or(guard_mode::none);
  if (auto ok = check_request(r); !ok) {
    return ok.error();
  }
  auto t = inspect_table(db, r.table);
  if (!t) {
    return t.error();
  }
  if (auto ok = check_kind(*t, r); !ok) {
    return ok.error();
  }
  if (auto ok = check_keys(*t, r); !ok) {
    return ok.error();
  }
  auto present = guards_on(db, t->name);
  if (!present) {
    return present.error();
  }
  if (!asked.guard && !present->empty()) {
    return detail::guard_unsaid(quoted_name(t->name));
  }
  if (auto ok = check_guarded_column(*present, *t, r); !ok) {
    return ok.error();
  }
  fence_plan plan;
  const auto* column = t->find(r.column);
  if (column == nullptr) {
    const auto name = quoted_name(r.column);
    plan.statements.push_back(fmt::format(
        "ALTER TABLE main.{} ADD COLUMN {} INTEGER NOT NULL DEFAULT 0 "
        "CHECK (typeof({}) = 'integer' AND {} BETWEEN 0 AND {})",
        quoted_name(t->name), name, name, name, fencing_token::max));
    note_column(*t, plan);
  } else if (auto ok = check_column(db, *t, *column); !ok) {
    return ok.error();
  }
  plan_guard(
      *present,
      guard_triggers(*t, column != nullptr ? column->name : r.column, *r.guard),
      plan);
  if (!plan.statements.empty()) {
    note_guard(*t, *r.guard, !present->empty(), plan);
  }
  return plan;
}

result<std::vector<std::string>> guard_differences(connection& db) {
  std::vector<std::string> tables;
  {
    auto find = db.prepare(
        "SELECT DISTINCT tbl_name FROM main.sqlite_schema "
        "WHERE type = 'trigger' AND name GLOB 'lastdoor_guard_*' ORDER BY 1",
        planning);
    if (!find) {
      return find.error();
    }
    for (;;) {
      auto more = find->step(planning);
      if (!more) {
        return more.error();
      }
      if (!*more) {
        break;
      }
      tables.push_back(find->text(0));
    }
  }
  std::vector<std::string> found;
  for (const auto& table : tables) {
    auto good = matches_release(db, table);
    if (!good) {
      return good.error();
    }
    if (!*good) {
      found.push_back(fmt::format(
          "the guard of table {} is not what this release makes for it: run "
          "lastdoor migrate add-fence again",
          table));
    }
    if (auto ok = note_skippers(db, table, found); !ok) {
      return ok.error();
    }
  }
  return found;
}

result<fence_plan> plan_fence(const std::string& path,
                              const fence_request& request) {
  auto db = connection::open(path, open_mode::existing);
  if (!db) {
    return db.error();
  }
  if (auto ok = check_schema(*db, ledger_version); !ok) {
    return ok.error();
  }
  return make_plan(*db, request);
}

result<fence_plan> add_fence(const std::string& path,
                             const fence_request& request) {
  auto db = connection::open(path, open_mode::existing);
  if (!db) {
    return db.error();
  }
  auto tx = transaction::begin_immediate(*db, "adding the fence");
  if (!tx) {
    return tx.error();
  }
  if (auto ok = check_schema(*db, ledger_version); !ok) {
    return ok.error();
  }
  auto plan = make_plan(*db, request);
  if (!plan) {
    return plan.error();
  }
  for (const auto& sql : plan->statements) {
    if (auto ok = db->exec(sql, "adding the fence"); !ok) {
      return ok.error();
    }
  }
  if (auto ok = tx->commit("adding the fence"); !ok) {
    return ok.error();
  }
  return plan;
}

}  // namespace lastdoor::sqlite

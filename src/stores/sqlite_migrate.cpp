#include "sqlite_migrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <lastdoor/migrate.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "embedded_sqlite_migrations.hpp"
#include "sqlite_schema_text.hpp"
#include "stores/sqlite_guard.hpp"

namespace lastdoor::sqlite {

namespace {

using detail::embedded_migration;
using sqlite_driver::connection;
using sqlite_driver::open_mode;
using sqlite_driver::statement;
using sqlite_driver::transaction;

// The one table that no migration makes: it says which ones were applied.
// `applied_at` is for people; nothing is decided by it.
constexpr std::string_view bookkeeping = R"(
CREATE TABLE IF NOT EXISTS lastdoor_migrations (
  version    INTEGER NOT NULL PRIMARY KEY,
  name       TEXT    NOT NULL,
  checksum   TEXT    NOT NULL,
  applied_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now'))
))";

// Tables whose rows must not be lost by accident, with the version that made
// them. Without its marks a store lets an old token pass; without its counter
// a lock service hands out old tokens again.
struct memory {
  int version;
  std::string_view table;
  std::string_view what;
};
constexpr memory memories[] = {
    {ledger_version, "lastdoor_marks", "marks"},
    {leases_version, "lastdoor_counters", "token counters"},
    {leases_version, "lastdoor_leases", "leases"},
};

struct applied_row {
  std::int64_t version;
  std::string name;
  std::string checksum;
};

constexpr std::string_view reading = "reading the migrations";
constexpr std::string_view migrating = "migrating";

std::span<const embedded_migration> known() noexcept {
  return detail::embedded_migrations();
}

// Null for a version that this release does not know.
const embedded_migration* known(std::int64_t version) noexcept {
  const auto all = known();
  if (version < 1 || std::cmp_greater(version, all.size())) {
    return nullptr;
  }
  return &all[static_cast<std::size_t>(version - 1)];
}

result<bool> exists(connection& db, std::string_view name) {
  auto find =
      db.prepare("SELECT 1 FROM main.sqlite_schema WHERE name = ?1", reading);
  if (!find) {
    return find.error();
  }
  return find->bind(1, name).step(reading);
}

result<std::vector<applied_row>> read_applied(connection& db) {
  std::vector<applied_row> rows;
  auto there = exists(db, "lastdoor_migrations");
  if (!there) {
    return there.error();
  }
  if (!*there) {
    return rows;
  }
  auto all = db.prepare(
      "SELECT version, name, checksum FROM main.lastdoor_migrations "
      "ORDER BY version",
      reading);
  if (!all) {
    return all.error();
  }
  for (;;) {
    auto more = all->step(reading);
    if (!more) {
      return more.error();
    }
    if (!*more) {
      return rows;
    }
    rows.push_back({all->integer(0), all->text(1), all->text(2)});
  }
}

// The versions applied are 1..n for some n, each with the text of this
// release; anything else is another release's file, and not ours to change.
result<void> recognise(const std::vector<applied_row>& rows) {
  std::int64_t next = 1;
  for (const auto& row : rows) {
    const auto* m = known(row.version);
    if (m == nullptr) {
      return fail(errc::schema_mismatch,
                  fmt::format("the file has migration {} '{}', which this "
                              "release does not know; it knows up to {}",
                              row.version, row.name, known().size()));
    }
    if (row.version != next) {
      return fail(errc::schema_mismatch,
                  fmt::format("migration {} is applied but {} is not",
                              row.version, next));
    }
    if (row.checksum != m->checksum) {
      return fail(errc::schema_mismatch,
                  fmt::format("migration {} '{}' was applied with another "
                              "text than this release has",
                              row.version, row.name));
    }
    ++next;
  }
  return {};
}

// How many migrations are applied, once they were recognised.
result<int> applied_count(connection& db) {
  auto rows = read_applied(db);
  if (!rows) {
    return rows.error();
  }
  if (auto ok = recognise(*rows); !ok) {
    return ok.error();
  }
  return static_cast<int>(rows->size());
}

result<void> record(connection& db, const embedded_migration& m) {
  auto insert = db.prepare(
      "INSERT INTO main.lastdoor_migrations (version, name, checksum) "
      "VALUES (?1, ?2, ?3)",
      migrating);
  if (!insert) {
    return insert.error();
  }
  return insert->bind(1, m.version)
      .bind(2, m.name)
      .bind(3, m.checksum)
      .run(migrating);
}

// True when it was this call that applied `m`.
result<bool> apply(connection& db, const embedded_migration& m,
                   const after_statement& after) {
  const auto doing =
      fmt::format("applying migration {} '{}'", m.version, m.name);
  auto tx = transaction::begin_immediate(db, doing);
  if (!tx) {
    return tx.error();
  }
  if (after) {
    after();
  }
  auto count = applied_count(db);
  if (!count) {
    return count.error();
  }
  if (*count >= m.version) {
    return false;
  }
  if (auto ok = db.exec_each(bookkeeping, doing, after); !ok) {
    return ok.error();
  }
  if (auto ok = db.exec_each(m.up, doing, after); !ok) {
    return ok.error();
  }
  if (auto ok = record(db, m); !ok) {
    return ok.error();
  }
  if (after) {
    after();
  }
  if (auto ok = tx->commit(doing); !ok) {
    return ok.error();
  }
  if (after) {
    after();
  }
  return true;
}

result<void> refuse_to_forget(connection& db, int to_version) {
  for (const auto& m : memories) {
    if (m.version <= to_version) {
      continue;
    }
    auto there = exists(db, m.table);
    if (!there) {
      return there.error();
    }
    if (!*there) {
      continue;
    }
    auto any = db.prepare(fmt::format("SELECT 1 FROM main.{} LIMIT 1", m.table),
                          reading);
    if (!any) {
      return any.error();
    }
    auto row = any->step(reading);
    if (!row) {
      return row.error();
    }
    if (*row) {
      return fail(errc::precondition_failed,
                  fmt::format("the file has {}; without them an old token "
                              "would pass, so taking them away has to be "
                              "asked for by name (discard marks)",
                              m.what));
    }
  }
  return {};
}

// The triggers on users' tables speak of lastdoor's tables: once these are
// gone, every write to the guarded ones would fail. Their fence columns are
// the users' data and stay.
result<void> drop_guards(connection& db, const after_statement& after) {
  std::vector<std::string> names;
  {
    auto guards = db.prepare(
        "SELECT name FROM main.sqlite_schema WHERE type = 'trigger' "
        "AND name GLOB 'lastdoor_guard_*'",
        reading);
    if (!guards) {
      return guards.error();
    }
    for (;;) {
      auto more = guards->step(reading);
      if (!more) {
        return more.error();
      }
      if (!*more) {
        break;
      }
      names.push_back(guards->text(0));
    }
  }
  for (const auto& name : names) {
    const auto sql = "DROP TRIGGER main." + sqlite_driver::quoted_name(name);
    if (auto ok = db.exec_each(sql, "dropping the guards", after); !ok) {
      return ok.error();
    }
  }
  return {};
}

result<void> forget(connection& db, const embedded_migration& m,
                    const after_statement& after) {
  const auto doing =
      fmt::format("taking back migration {} '{}'", m.version, m.name);
  if (auto ok = db.exec_each(m.down, doing, after); !ok) {
    return ok.error();
  }
  const auto sql = m.version == 1
                       ? std::string{"DROP TABLE main.lastdoor_migrations"}
                       : fmt::format(
                             "DELETE FROM main.lastdoor_migrations "
                             "WHERE version = {}",
                             m.version);
  return db.exec_each(sql, doing, after);
}

// Marks that got past their constraints: a store takes them for damage.
result<void> find_damaged_marks(connection& db,
                                std::vector<std::string>& found) {
  auto there = exists(db, "lastdoor_marks");
  if (!there || !*there) {
    return there ? result<void>{} : there.error();
  }
  auto odd = db.prepare(
      "SELECT resource FROM main.lastdoor_marks WHERE typeof(token) <> "
      "'integer' OR token NOT BETWEEN 1 AND 9007199254740991 LIMIT 10",
      reading);
  if (!odd) {
    return odd.error();
  }
  for (;;) {
    auto more = odd->step(reading);
    if (!more) {
      return more.error();
    }
    if (!*more) {
      return {};
    }
    found.push_back(fmt::format("the mark of '{}' is no token", odd->text(0)));
  }
}

}  // namespace

result<std::vector<int>> apply_missing(connection& db,
                                       const after_statement& after) {
  std::vector<int> done;
  auto count = applied_count(db);
  if (!count) {
    return count.error();
  }
  for (const auto& m : known()) {
    if (m.version <= *count) {
      continue;
    }
    auto mine = apply(db, m, after);
    if (!mine) {
      return mine.error();
    }
    if (*mine) {
      done.push_back(m.version);
    }
  }
  return done;
}

result<void> apply_all(connection& db) {
  auto done = apply_missing(db);
  if (!done) {
    return done.error();
  }
  return {};
}

result<std::vector<int>> take_back(connection& db, int to_version,
                                   bool discard_marks,
                                   const after_statement& after) {
  if (to_version < 0 || std::cmp_greater(to_version, known().size())) {
    return fail(errc::invalid_argument,
                fmt::format("there is no version {} to go back to; this "
                            "release knows 0 to {}",
                            to_version, known().size()));
  }
  auto tx = transaction::begin_immediate(db, migrating);
  if (!tx) {
    return tx.error();
  }
  if (after) {
    after();
  }
  auto count = applied_count(db);
  if (!count) {
    return count.error();
  }
  std::vector<int> done;
  if (*count <= to_version) {
    return done;
  }
  if (!discard_marks) {
    if (auto ok = refuse_to_forget(db, to_version); !ok) {
      return ok.error();
    }
  }
  if (to_version == 0) {
    if (auto ok = drop_guards(db, after); !ok) {
      return ok.error();
    }
  }
  for (int version = *count; version > to_version; --version) {
    if (auto ok = forget(db, *known(version), after); !ok) {
      return ok.error();
    }
    done.push_back(version);
  }
  if (auto ok = tx->commit(migrating); !ok) {
    return ok.error();
  }
  if (after) {
    after();
  }
  return done;
}

result<void> check_schema(connection& db, int required) {
  auto count = applied_count(db);
  if (!count) {
    return count.error();
  }
  if (*count < required) {
    return fail(errc::schema_mismatch,
                fmt::format("the file has lastdoor's migrations up to {}, "
                            "{} is needed: run lastdoor migrate up",
                            *count, required));
  }
  return {};
}

result<std::vector<std::string>> own_differences(connection& db) {
  auto fresh = connection::in_memory();
  if (!fresh) {
    return fresh.error();
  }
  if (auto ok = apply_all(*fresh); !ok) {
    return ok.error();
  }
  auto want = read_own_schema(*fresh);
  if (!want) {
    return want.error();
  }
  auto have = read_own_schema(db);
  if (!have) {
    return have.error();
  }
  return differences(*want, *have);
}

result<std::vector<int>> migrate_up(const std::string& path) {
  auto db = connection::open(path, open_mode::create);
  if (!db) {
    return db.error();
  }
  return apply_missing(*db);
}

result<std::vector<int>> migrate_down(const std::string& path, int to_version,
                                      bool discard_marks) {
  auto db = connection::open(path, open_mode::existing);
  if (!db) {
    return db.error();
  }
  return take_back(*db, to_version, discard_marks);
}

result<std::vector<migration_status>> migrate_status(const std::string& path) {
  auto db = connection::open(path, open_mode::existing);
  if (!db) {
    return db.error();
  }
  auto rows = read_applied(*db);
  if (!rows) {
    return rows.error();
  }
  std::vector<migration_status> all;
  for (const auto& m : known()) {
    all.push_back({m.version, std::string{m.name}, false, true});
  }
  for (auto& row : *rows) {
    if (const auto* m = known(row.version)) {
      auto& status = all[static_cast<std::size_t>(m->version - 1)];
      status.applied = true;
      status.checksum_matches = row.checksum == m->checksum;
    } else {
      // A newer release was here. Its text is not ours, whatever it is.
      all.push_back(
          {static_cast<int>(row.version), std::move(row.name), true, false});
    }
  }
  return all;
}

result<std::vector<std::string>> migrate_verify(const std::string& path) {
  auto db = connection::open(path, open_mode::existing);
  if (!db) {
    return db.error();
  }
  auto found = own_differences(*db);
  if (!found) {
    return found.error();
  }
  auto count = applied_count(*db);
  if (!count && count.code() != errc::schema_mismatch) {
    return count.error();
  }
  if (!count) {
    found->push_back(count.error().text());
  }
  if (auto ok = find_damaged_marks(*db, *found); !ok) {
    return ok.error();
  }
  auto guards = guard_differences(*db);
  if (!guards) {
    return guards.error();
  }
  found->insert(found->end(), guards->begin(), guards->end());
  return found;
}

}  // namespace lastdoor::sqlite

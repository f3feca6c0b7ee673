// The plan. How it is applied is in postgres_add_fence.cpp.
#include "postgres_guard.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "stores/migration_plan.hpp"
#include "stores/postgres_ledger.hpp"

namespace lastdoor::postgres {

namespace {

using postgres_driver::arguments;
using postgres_driver::connection;
using postgres_driver::effect;
using postgres_driver::quoted_name;

constexpr std::string_view planning = "planning a fence";

// The table itself and, of a partitioned one, all below it. `guard` and
// `truncate` are true when the trigger is exactly what is asked for, false
// when it is another, and NULL when there is none. The bits of tgtype: ROW 1,
// BEFORE 2, INSERT 4, DELETE 8, UPDATE 16, TRUNCATE 32.
constexpr std::string_view tree_sql =
    "WITH tree AS (SELECT $1::bigint::oid AS relid UNION "
    "SELECT p.relid::oid FROM pg_catalog.pg_partition_tree($1::bigint::oid)"
    " p), nul AS (SELECT pg_catalog.decode('00', 'hex') AS b, "
    "pg_catalog.convert_to($2, pg_catalog.getdatabaseencoding()) AS mode, "
    "pg_catalog.convert_to($3, pg_catalog.getdatabaseencoding()) AS col) "
    "SELECT n.nspname, c.relname, c.relkind, "
    "(SELECT t.tgenabled = 'A' AND t.tgtype = 31 AND t.tgqual IS NULL "
    "AND t.tgattr::text = '' AND t.tgargs = mode || b || col || b "
    "AND t.tgfoid = pg_catalog.to_regproc('lastdoor.guard') "
    "FROM pg_catalog.pg_trigger t, nul "
    "WHERE t.tgrelid = c.oid AND t.tgname = $4), "
    "(SELECT t.tgenabled = 'A' AND t.tgtype = 34 AND t.tgqual IS NULL "
    "AND t.tgargs = mode || b "
    "AND t.tgfoid = pg_catalog.to_regproc('lastdoor.guard_truncate') "
    "FROM pg_catalog.pg_trigger t, nul "
    "WHERE t.tgrelid = c.oid AND t.tgname = $5) "
    "FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.relid "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "ORDER BY c.oid <> $1::bigint::oid, c.oid";

// Our constraint, and triggers of others that run after the guard and could
// change what it stamped.
constexpr std::string_view details_sql =
    "SELECT (SELECT o.convalidated FROM pg_catalog.pg_constraint o "
    "WHERE o.conrelid = $1::bigint::oid AND o.conname = $2 "
    "AND o.contype = 'c'), "
    "(SELECT pg_catalog.string_agg(pg_catalog.quote_ident(t.tgname), ', ') "
    "FROM pg_catalog.pg_trigger t WHERE t.tgrelid = $1::bigint::oid "
    "AND NOT t.tgisinternal AND t.tgtype & 3 = 3 AND t.tgname > $3 "
    "AND t.tgname <> $4), "
    "pg_catalog.current_setting('server_version_num')::int, "
    "pg_catalog.to_regclass('lastdoor.marks') IS NOT NULL "
    "AND pg_catalog.to_regproc('lastdoor.guard') IS NOT NULL, "
    "EXISTS (SELECT FROM pg_catalog.pg_subscription_rel r "
    "WHERE r.srrelid = $1::bigint::oid), "
    "(SELECT pg_catalog.string_agg(i.inhrelid::regclass::text, ', ') "
    "FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class k "
    "ON k.oid = i.inhrelid WHERE i.inhparent = $1::bigint::oid "
    "AND NOT k.relispartition), "
    "(SELECT pg_catalog.string_agg(x.indexrelid::regclass::text, ', ') "
    "FROM pg_catalog.pg_index x WHERE NOT x.indisvalid AND x.indrelid IN "
    "(SELECT $1::bigint::oid UNION SELECT p.relid::oid "
    "FROM pg_catalog.pg_partition_tree($1::bigint::oid) p))";

struct member {
  std::string sql;
  bool foreign{false};
  std::optional<bool> guard;     // exactly as wanted?
  std::optional<bool> truncate;  // exactly as wanted?
};

struct situation {
  relation target;
  std::optional<table_column> column;
  std::optional<bool> constraint;  // validated?
  std::string later_triggers;
  std::int64_t server_version{0};
  bool migrated{false};
  bool subscribed{false};
  std::string heirs;
  std::string invalid_indexes;
  std::vector<member> tree;
};

std::string_view name_of(guard_mode mode) {
  switch (mode) {
    case guard_mode::audit:
      return "audit";
    case guard_mode::strict:
      return "strict";
    case guard_mode::none:
      break;
  }
  return "";
}

error refuse(errc code, const relation& r, std::string_view why) {
  return fail(code, fmt::format("{} cannot be fenced: {}", r.shown(), why));
}

result<void> check_kind(const relation& r, const fence_request& request) {
  if (r.kind == relation_kind::absent) {
    return fail(
        errc::schema_mismatch,
        fmt::format("there is no table {}{}",
                    request.schema.empty() ? std::string{}
                                           : quoted_name(request.schema) + ".",
                    quoted_name(request.table)));
  }
  const auto no = [&](std::string_view why) {
    return refuse(errc::invalid_argument, r, why);
  };
  if (reserved_schema(r.schema) && !r.temporary) {
    return no("it belongs to Postgres or to lastdoor itself");
  }
  if (r.temporary) {
    return no("a temporary table is seen by one session only");
  }
  switch (r.kind) {
    case relation_kind::view:
      return no("it is a view; fence the tables below it");
    case relation_kind::foreign:
      return no(
          "it is a foreign table; fence it where its rows are, since no lock "
          "here holds there");
    case relation_kind::other:
      return no("it is no table");
    default:
      break;
  }
  if (r.parent != 0) {
    return no("it is a partition; fence the partitioned table");
  }
  return {};
}

result<void> read_details(connection& db, situation& s, time_point deadline) {
  auto rows = db.run({details_sql, planning, effect::reads, deadline},
                     arguments{}
                         .add(s.target.oid)
                         .add(range_constraint)
                         .add(guard_trigger)
                         .add(truncate_trigger));
  if (!rows) {
    return rows.error();
  }
  if (!rows->is_null(0, 0)) {
    s.constraint = rows->truth(0, 0);
  }
  s.later_triggers = rows->text(0, 1);
  s.server_version = rows->integer(0, 2);
  s.migrated = rows->truth(0, 3);
  s.subscribed = rows->truth(0, 4);
  s.heirs = rows->text(0, 5);
  s.invalid_indexes = rows->text(0, 6);
  return {};
}

result<void> read_tree(connection& db, const fence_request& request,
                       situation& s, time_point deadline) {
  auto rows = db.run({tree_sql, planning, effect::reads, deadline},
                     arguments{}
                         .add(s.target.oid)
                         .add(name_of(*request.guard))
                         .add(std::string_view{request.column})
                         .add(guard_trigger)
                         .add(truncate_trigger));
  if (!rows) {
    return rows.error();
  }
  for (int i = 0; i < rows->rows(); ++i) {
    member m;
    m.sql = quoted_name(rows->text(i, 0)) + "." + quoted_name(rows->text(i, 1));
    m.foreign = rows->text(i, 2) == "f";
    if (!rows->is_null(i, 3)) {
      m.guard = rows->truth(i, 3);
    }
    if (!rows->is_null(i, 4)) {
      m.truncate = rows->truth(i, 4);
    }
    s.tree.push_back(std::move(m));
  }
  return {};
}

result<situation> look(connection& db, const fence_request& request,
                       time_point deadline) {
  auto target = find_relation(db, request.schema, request.table, deadline);
  if (!target) {
    return target.error();
  }
  if (auto ok = check_kind(*target, request); !ok) {
    return ok.error();
  }
  situation s;
  s.target = std::move(*target);
  auto column = find_column(db, s.target.oid, request.column, deadline);
  if (!column) {
    return column.error();
  }
  s.column = std::move(*column);
  if (auto ok = read_details(db, s, deadline); !ok) {
    return ok.error();
  }
  if (auto ok = read_tree(db, request, s, deadline); !ok) {
    return ok.error();
  }
  return s;
}

bool default_is_zero(std::string_view sql) {
  return sql == "0" || sql == "'0'::bigint" || sql == "(0)::bigint";
}

// The column that is there already, if it can be the fence as it is.
result<void> check_column(const situation& s, const fence_request& request) {
  if (!s.column) {
    return {};
  }
  const auto& c = *s.column;
  const auto table = s.target.sql();
  const auto column = quoted_name(request.column);
  const auto no = [&](const std::string& why) {
    return refuse(errc::schema_mismatch, s.target, why);
  };
  if (c.type != "bigint") {
    return no(fmt::format(
        "its column {} is {}, and a token needs bigint. Either choose another "
        "column, or change it while nobody writes (this rewrites the table): "
        "ALTER TABLE {} ALTER COLUMN {} TYPE bigint USING {}::bigint",
        column, c.type, table, column, column));
  }
  if (c.generated) {
    return no(fmt::format(
        "the values of its column {} are generated; choose another column",
        column));
  }
  if (!c.not_null) {
    return no(fmt::format(
        "its column {} may be NULL, which compares with no token. First: "
        "UPDATE {} SET {} = 0 WHERE {} IS NULL; ALTER TABLE {} ALTER COLUMN "
        "{} SET NOT NULL",
        column, table, column, column, table, column));
  }
  if (!c.default_sql.empty() && !default_is_zero(c.default_sql)) {
    return no(fmt::format(
        "its column {} has the default {}, and only a grant sets a fence. "
        "First: ALTER TABLE {} ALTER COLUMN {} SET DEFAULT 0",
        column, c.default_sql, table, column));
  }
  return {};
}

result<void> check_situation(const situation& s, const fence_request& request) {
  if (s.server_version < 130000) {
    return refuse(errc::misconfigured, s.target,
                  "the server is older than Postgres 13");
  }
  if (!s.migrated) {
    return fail(errc::schema_mismatch,
                "the database lacks lastdoor's tables: run lastdoor migrate "
                "up");
  }
  for (const auto& m : s.tree) {
    if (m.foreign && request.guard != guard_mode::none) {
      return refuse(errc::invalid_argument, s.target,
                    fmt::format("its partition {} is a foreign table, which a "
                                "guard here cannot lock",
                                m.sql));
    }
  }
  return check_column(s, request);
}

void plan_column(const situation& s, const fence_request& request,
                 guard_plan& plan) {
  const auto column = quoted_name(request.column);
  const auto table = s.target.sql();
  std::vector<std::string> actions;
  if (!s.column) {
    actions.push_back(
        fmt::format("ADD COLUMN {} bigint NOT NULL DEFAULT 0", column));
  } else if (s.column->default_sql.empty()) {
    actions.push_back(fmt::format("ALTER COLUMN {} SET DEFAULT 0", column));
  }
  if (!s.constraint) {
    actions.push_back(
        fmt::format("ADD CONSTRAINT {} CHECK ({} BETWEEN 0 AND {}) NOT VALID",
                    range_constraint, column, fencing_token::max));
  }
  if (!actions.empty()) {
    plan.steps.push_back(
        {{fmt::format("ALTER TABLE {} {}", table, fmt::join(actions, ", "))}});
    plan.notes.push_back(
        "ALTER TABLE takes ACCESS EXCLUSIVE for a moment; it writes no row "
        "and scans none");
  }
  if (!s.constraint.value_or(false)) {
    plan.steps.push_back({{fmt::format("ALTER TABLE {} VALIDATE CONSTRAINT {}",
                                       table, range_constraint)}});
    plan.notes.push_back(
        "VALIDATE CONSTRAINT takes SHARE UPDATE EXCLUSIVE and reads the "
        "table; reads and writes go on");
  }
}

void plan_removal(const situation& s, guard_plan& plan) {
  guard_step step;
  // Copies of the row trigger on partitions go with the one at the top.
  if (s.tree.front().guard) {
    step.statements.push_back(fmt::format("DROP TRIGGER IF EXISTS {} ON {}",
                                          guard_trigger, s.target.sql()));
  }
  for (const auto& m : s.tree) {
    if (m.truncate) {
      step.statements.push_back(fmt::format("DROP TRIGGER IF EXISTS {} ON {}",
                                            truncate_trigger, m.sql));
    }
  }
  if (!step.statements.empty()) {
    plan.steps.push_back(std::move(step));
    plan.notes.push_back("DROP TRIGGER takes ACCESS EXCLUSIVE for a moment");
  }
}

void replace_trigger(guard_step& step, std::string_view trigger,
                     const std::string& table, std::optional<bool> present,
                     const std::string& rest) {
  if (present) {
    step.statements.push_back(
        fmt::format("DROP TRIGGER IF EXISTS {} ON {}", trigger, table));
  }
  step.statements.push_back(fmt::format("CREATE TRIGGER {} {}", trigger, rest));
}

// The row trigger is made at the top, and Postgres copies it to partitions
// that are there and that will be. TRUNCATE triggers are not copied, and
// whether ENABLE ALWAYS reaches the copies depends on the release: both are
// said for each table.
void plan_triggers(const situation& s, const fence_request& request,
                   guard_plan& plan) {
  const auto mode = name_of(*request.guard);
  guard_step step;
  const bool rows_guarded =
      std::all_of(s.tree.begin(), s.tree.end(),
                  [](const member& m) { return m.guard.value_or(false); });
  if (!rows_guarded) {
    replace_trigger(
        step, guard_trigger, s.target.sql(), s.tree.front().guard,
        fmt::format("BEFORE INSERT OR UPDATE OR DELETE ON {} FOR "
                    "EACH ROW EXECUTE FUNCTION lastdoor.guard({}, "
                    "{})",
                    s.target.sql(), literal(mode), literal(request.column)));
  }
  for (const auto& m : s.tree) {
    const bool truncate_guarded = m.truncate.value_or(false);
    if (!truncate_guarded) {
      replace_trigger(step, truncate_trigger, m.sql, m.truncate,
                      fmt::format("BEFORE TRUNCATE ON {} FOR EACH STATEMENT "
                                  "EXECUTE FUNCTION "
                                  "lastdoor.guard_truncate({})",
                                  m.sql, literal(mode)));
    }
    std::vector<std::string> always;
    if (!rows_guarded) {
      always.push_back(fmt::format("ENABLE ALWAYS TRIGGER {}", guard_trigger));
    }
    if (!truncate_guarded) {
      always.push_back(
          fmt::format("ENABLE ALWAYS TRIGGER {}", truncate_trigger));
    }
    if (!always.empty()) {
      step.statements.push_back(
          fmt::format("ALTER TABLE {} {}", m.sql, fmt::join(always, ", ")));
    }
  }
  if (!step.statements.empty()) {
    plan.steps.push_back(std::move(step));
    plan.notes.push_back(
        "CREATE TRIGGER takes SHARE ROW EXCLUSIVE for a moment: writers wait, "
        "readers do not (where a guard is replaced, readers do too)");
  }
}

void add_notes(const situation& s, const fence_request& request,
               guard_plan& plan) {
  auto& notes = plan.notes;
  if (plan.steps.empty()) {
    notes.push_back("nothing is missing");
  }
  if (s.target.unlogged) {
    notes.push_back(
        "the table is UNLOGGED: after a crash it is empty, and its fences "
        "with it; the ledger stays");
  }
  if (!s.heirs.empty()) {
    notes.push_back(fmt::format(
        "{} inherit from it: their rows are part of it, but a guard is not "
        "inherited; fence each of them as well",
        s.heirs));
  }
  if (!s.invalid_indexes.empty()) {
    notes.push_back(fmt::format(
        "INVALID indexes, left by a build that failed or is under way: {}. "
        "None is lastdoor's, and none counts as a key until it is valid: "
        "REINDEX INDEX CONCURRENTLY, or DROP INDEX CONCURRENTLY",
        s.invalid_indexes));
  }
  if (request.guard == guard_mode::none) {
    return;
  }
  notes.push_back(
      "the guard fires ALWAYS, so also for rows that replication applies "
      "here, and those bring no token");
  if (s.subscribed) {
    notes.push_back(
        "a subscription writes to this table: it will stop at the guard");
  }
  if (!s.later_triggers.empty()) {
    notes.push_back(fmt::format(
        "triggers that run after the guard can change the fence it stamped: "
        "{}",
        s.later_triggers));
  }
  if (s.target.kind == relation_kind::partitioned) {
    notes.push_back(
        "partitions made later inherit the guard of their rows, but Postgres "
        "does not copy TRUNCATE triggers: run this again after adding one");
  }
}

}  // namespace

result<guard_plan> plan_guard(connection& db, const fence_request& asked,
                              time_point deadline) {
  auto request = asked;
  request.guard = asked.guard.value_or(guard_mode::none);
  for (const auto* name : {&request.table, &request.column}) {
    if (name->empty() || name->size() > 63) {
      return fail(errc::invalid_argument,
                  fmt::format("'{}' cannot be a name in Postgres", *name));
    }
  }
  auto s = look(db, request, deadline);
  if (!s) {
    return s.error();
  }
  if (!asked.guard &&
      std::any_of(s->tree.begin(), s->tree.end(), [](const member& m) {
        return m.guard.has_value() || m.truncate.has_value();
      })) {
    return detail::guard_unsaid(s->target.shown());
  }
  if (auto ok = check_situation(*s, request); !ok) {
    return ok.error();
  }
  guard_plan plan;
  plan.target = s->target;
  plan.notes.push_back(fmt::format("the table is {}", s->target.shown()));
  plan_column(*s, request, plan);
  if (request.guard == guard_mode::none) {
    plan_removal(*s, plan);
  } else {
    plan_triggers(*s, request, plan);
  }
  add_notes(*s, request, plan);
  return plan;
}

}  // namespace lastdoor::postgres

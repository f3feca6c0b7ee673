// Applying a plan to a table that is in use, and looking after it later.
#include <fmt/format.h>

#include <algorithm>

#include "locks/backoff.hpp"
#include "locks/entropy.hpp"
#include "stores/postgres_guard.hpp"

namespace lastdoor {

namespace postgres {

namespace {

using namespace std::chrono_literals;
using postgres_driver::arguments;
using postgres_driver::connection;
using postgres_driver::effect;

constexpr std::string_view applying = "fencing the table";
constexpr duration question_timeout = 30s;
// A plan has three steps. More are needed only while somebody else undoes
// them, and then it is better to say so than to go on.
constexpr int steps_max = 20;
// A step that has its lock may take as long as a scan takes.
constexpr duration step_timeout = std::chrono::hours{24 * 7};

constexpr std::string_view holders_sql =
    "SELECT pg_catalog.string_agg(DISTINCT pg_catalog.format("
    "'pid %s (%s, %s)', l.pid, coalesce(nullif(a.application_name, ''), "
    "nullif(a.backend_type, 'client backend'), 'no name'), "
    "coalesce(a.state, 'unknown')), '; ') "
    "FROM pg_catalog.pg_locks l "
    "LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid "
    "WHERE l.locktype = 'relation' AND l.granted "
    "AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d "
    "WHERE d.datname = pg_catalog.current_database()) "
    "AND l.pid <> pg_catalog.pg_backend_pid() AND l.relation IN "
    "(SELECT $1::bigint::oid UNION SELECT p.relid::oid "
    "FROM pg_catalog.pg_partition_tree($1::bigint::oid) p)";

// What a guard must be, row by row of the catalogue. The parameters are the
// names of the two triggers.
constexpr std::string_view findings_sql =
    "WITH guards AS (SELECT t.*, c.relkind, "
    "pg_catalog.format('%I.%I', n.nspname, c.relname) AS shown, "
    "t.tgfoid = pg_catalog.to_regproc('lastdoor.guard') AS of_rows, "
    "pg_catalog.split_part(pg_catalog.encode(t.tgargs, 'escape'), "
    "E'\\\\000', 2) AS fence "
    "FROM pg_catalog.pg_trigger t "
    "JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
    "WHERE t.tgfoid IN (pg_catalog.to_regproc('lastdoor.guard'), "
    "pg_catalog.to_regproc('lastdoor.guard_truncate'))) "
    "SELECT pg_catalog.format('the guard %I on %s is switched off', "
    "tgname, shown) FROM guards WHERE tgenabled = 'D' "
    "UNION ALL "
    "SELECT pg_catalog.format('the guard %I on %s does not fire ALWAYS: a "
    "session that plays the replica gets around it', tgname, shown) "
    "FROM guards WHERE tgenabled NOT IN ('A', 'D') "
    "UNION ALL "
    "SELECT pg_catalog.format('the guard %I on %s was narrowed by a "
    "condition, a column list or to some operations', tgname, shown) "
    "FROM guards WHERE tgqual IS NOT NULL OR tgattr::text <> '' "
    "OR tgtype <> CASE WHEN of_rows THEN 31 ELSE 34 END "
    "UNION ALL "
    "SELECT pg_catalog.format('%s has a row guard and no guard against "
    "TRUNCATE', shown) FROM guards g WHERE of_rows AND NOT EXISTS ("
    "SELECT FROM guards u WHERE u.tgrelid = g.tgrelid AND NOT u.of_rows) "
    "UNION ALL "
    "SELECT pg_catalog.format('%s has a guard against TRUNCATE and none for "
    "its rows', shown) FROM guards g WHERE NOT of_rows AND NOT EXISTS ("
    "SELECT FROM guards u WHERE u.tgrelid = g.tgrelid AND u.of_rows) "
    "UNION ALL "
    "SELECT pg_catalog.format('the fence %I of %s is not bigint NOT NULL', "
    "fence, shown) FROM guards g WHERE of_rows AND NOT EXISTS ("
    "SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = g.tgrelid "
    "AND a.attname = g.fence AND a.atttypid = 'bigint'::regtype "
    "AND a.attnotnull AND NOT a.attisdropped) "
    "UNION ALL "
    "SELECT pg_catalog.format('%s inherits from %s, which is guarded, and "
    "has no guard', i.inhrelid::regclass, shown) FROM guards g "
    "JOIN pg_catalog.pg_inherits i ON i.inhparent = g.tgrelid "
    "WHERE of_rows AND NOT EXISTS (SELECT FROM guards u "
    "WHERE u.tgrelid = i.inhrelid AND u.of_rows) "
    "ORDER BY 1";

std::int64_t ms_of(duration d) {
  return std::max<std::int64_t>(
      1, std::chrono::ceil<std::chrono::milliseconds>(d).count());
}

// Waits in two parts. SHARE UPDATE EXCLUSIVE comes first: it excludes vacuums,
// index builds and others like us, and whoever waits for it is in nobody's way
// who reads or writes. Then the lock that the step itself takes, for which
// others do queue up.
std::string script_of(const guard_plan& plan, const guard_limits& limits,
                      bool quietly_first) {
  // A limit that the role or the database sets on statements is for its
  // queries; here it would end a scan of a large table half way.
  std::string sql = "BEGIN; SET LOCAL statement_timeout = 0; ";
  if (quietly_first) {
    sql += fmt::format(
        "SET LOCAL lock_timeout = {}; "
        "LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE; ",
        ms_of(limits.quiet_timeout), plan.target.sql());
  }
  sql +=
      fmt::format("SET LOCAL lock_timeout = {}; ", ms_of(limits.lock_timeout));
  for (const auto& statement : plan.steps.front().statements) {
    sql += statement + "; ";
  }
  return sql + "COMMIT";
}

// The table was busy, or somebody else is doing the same thing right now:
// look again, then try again.
bool worth_another_try(const error& e) {
  constexpr std::string_view states[] = {
      "55P03",  // lock timeout
      "40P01",  // deadlock
      "42701",  // the column is there now
      "42710",  // the constraint or trigger is there now
      "42704",  // the trigger is gone now
      "XX000",  // tuple concurrently updated
  };
  return std::find(std::begin(states), std::end(states), e.backend()) !=
         std::end(states);
}

result<void> run_script(connection& db, const std::string& sql) {
  const auto now = db.time()->now();
  auto done = db.script({sql, applying, effect::writes, now + step_timeout});
  if (done) {
    return {};
  }
  auto back = db.script({"ROLLBACK", applying, effect::reads,
                         db.time()->now() + question_timeout});
  if (!back) {
    return back.error();
  }
  return done.error();
}

// LOCK TABLE asks for rights that an owner may have taken from itself, such as
// those to update or delete what is only appended to.
result<void> run_step(connection& db, const guard_plan& plan,
                      const guard_limits& limits) {
  auto done = run_script(db, script_of(plan, limits, true));
  if (!done && done.error().backend() == "42501") {
    return run_script(db, script_of(plan, limits, false));
  }
  return done;
}

error busy(connection& db, const relation& target, const error& last) {
  auto rows = db.run({holders_sql, applying, effect::reads,
                      db.time()->now() + question_timeout},
                     arguments{}.add(target.oid));
  std::string who;
  if (rows && !rows->empty() && !rows->is_null(0, 0)) {
    who = fmt::format("; it is held by {}", rows->text(0, 0));
  }
  return fail(errc::unavailable,
              fmt::format("{} is too busy to be changed now: {}{}. What was "
                          "done so far stays; run the same again later",
                          target.shown(), last.text(), who))
      .backend(last.backend());
}

}  // namespace

result<guard_plan> apply_guard(connection& db, const fence_request& request,
                               const guard_limits& limits) {
  const auto& time = *db.time();
  const auto give_up_at = time.now() + limits.give_up_after;
  detail::backoff pause{{limits.lock_timeout, limits.longest_pause},
                        detail::random_seed()};
  const auto bell = db.time()->make_alarm();
  auto first = plan_guard(db, request, time.now() + question_timeout);
  if (!first) {
    return first;
  }
  int steps = 0;
  for (auto plan = first; !plan->steps.empty();) {
    auto done = run_step(db, *plan, limits);
    if (done && limits.after_step) {
      limits.after_step();
    }
    if (done && ++steps == steps_max) {
      return fail(errc::unavailable,
                  fmt::format("{}: what was done is undone again and again",
                              plan->target.shown()));
    }
    if (done) {
      pause.reset();
    } else if (!worth_another_try(done.error())) {
      return done.error();
    } else if (time.now() >= give_up_at) {
      return busy(db, plan->target, done.error());
    } else {
      (void)bell->wait_until(time.now() + pause.next());
    }
    plan = plan_guard(db, request, time.now() + question_timeout);
    if (!plan) {
      return plan;
    }
  }
  return first;
}

result<std::vector<std::string>> inspect_guards(connection& db,
                                                time_point deadline) {
  auto rows =
      db.run({findings_sql, "looking at the guards", effect::reads, deadline});
  if (!rows) {
    return rows.error();
  }
  std::vector<std::string> findings;
  for (int i = 0; i < rows->rows(); ++i) {
    findings.emplace_back(rows->text(i, 0));
  }
  return findings;
}

namespace {

fence_plan flatten(guard_plan plan) {
  fence_plan out;
  for (auto& step : plan.steps) {
    for (auto& statement : step.statements) {
      out.statements.push_back(std::move(statement));
    }
  }
  out.notes = std::move(plan.notes);
  return out;
}

result<connection> connect(const std::string& url) {
  auto where = postgres_driver::parse_endpoint(url);
  if (!where) {
    return where.error();
  }
  return connection::open(*where, {}, boot_clock()->now() + question_timeout);
}

}  // namespace

result<fence_plan> plan_fence(const std::string& url,
                              const fence_request& request) {
  auto db = connect(url);
  if (!db) {
    return db.error();
  }
  auto plan = plan_guard(*db, request, boot_clock()->now() + question_timeout);
  if (!plan) {
    return plan.error();
  }
  return flatten(std::move(*plan));
}

result<fence_plan> add_fence(const std::string& url,
                             const fence_request& request) {
  auto db = connect(url);
  if (!db) {
    return db.error();
  }
  auto plan = apply_guard(*db, request, {});
  if (!plan) {
    return plan.error();
  }
  return flatten(std::move(*plan));
}

}  // namespace postgres
}  // namespace lastdoor

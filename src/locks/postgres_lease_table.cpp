#include "locks/postgres_lease_table.hpp"

#include <fmt/format.h>

#include "stores/postgres_migrate.hpp"

namespace lastdoor::postgres_leases {

namespace {

using postgres_driver::answer;
using postgres_driver::arguments;
using postgres_driver::effect;

constexpr std::string_view acquiring = "acquiring the lease";
constexpr std::string_view renewing = "renewing the lease";
constexpr std::string_view releasing = "releasing the lease";
constexpr std::string_view inspecting = "looking at the lease";
constexpr std::string_view raising = "raising the token counter";
constexpr std::string_view opening = "opening the lock service";

// The new token is above the row's in any case; where the counter gave less,
// it was set back, and the caller finds out by comparing the two. The timeline
// is part of the condition because a pooler may put another server behind a
// connection at any time. clock_timestamp() moves on while the statement
// waits for a row lock; now() would be the time at which the wait began.
constexpr std::string_view take_sql =
    "UPDATE lastdoor.leases SET owner = $3::text, "
    "token = greatest(pg_catalog.nextval('lastdoor.token'), token + 1), "
    "holder = $4::text, "
    "expires_at = pg_catalog.clock_timestamp() "
    "+ $5::bigint * interval '1 microsecond' "
    "WHERE name_space = $1::text AND resource = $2::text "
    "AND expires_at <= pg_catalog.clock_timestamp() "
    "AND (SELECT s.timeline FROM lastdoor.token_source AS s) "
    "= pg_catalog.substr(pg_catalog.pg_walfile_name("
    "pg_catalog.pg_current_wal_insert_lsn()), 1, 8) "
    "RETURNING token, pg_catalog.currval('lastdoor.token'), "
    "(EXTRACT(epoch FROM expires_at - pg_catalog.clock_timestamp()) "
    "* 1000000)::bigint, "
    // A token must not leave before it is on the disk.
    "CASE WHEN pg_catalog.current_setting('synchronous_commit') "
    "IN ('off', 'local') "
    "THEN pg_catalog.set_config('synchronous_commit', 'on', true) END";

// Infinity cannot be subtracted from, hence the CASE.
constexpr std::string_view look_sql =
    "SELECT (SELECT s.timeline FROM lastdoor.token_source AS s) "
    "IS NOT DISTINCT FROM pg_catalog.substr(pg_catalog.pg_walfile_name("
    "pg_catalog.pg_current_wal_insert_lsn()), 1, 8), "
    "l.resource IS NOT NULL, l.expires_at = '-infinity', l.token, "
    "CASE WHEN l.expires_at > pg_catalog.clock_timestamp() THEN "
    "(EXTRACT(epoch FROM l.expires_at - pg_catalog.clock_timestamp()) "
    "* 1000000)::bigint ELSE 0 END, l.owner, l.holder "
    "FROM (VALUES (1)) AS one (row) LEFT JOIN lastdoor.leases AS l "
    "ON l.name_space = $1::text AND l.resource = $2::text";

// If it is lost in a crash it is made again.
constexpr std::string_view add_sql =
    "INSERT INTO lastdoor.leases "
    "(name_space, resource, owner, token, expires_at, holder) "
    "VALUES ($1::text, $2::text, '', 0, '-infinity', '') "
    "ON CONFLICT DO NOTHING "
    "RETURNING pg_catalog.set_config('synchronous_commit', 'off', true)";

// greatest(): a renewal for a shorter time must not end what was promised
// before.
constexpr std::string_view extend_sql =
    "UPDATE lastdoor.leases SET expires_at = greatest(expires_at, "
    "pg_catalog.clock_timestamp() + $4::bigint * interval '1 microsecond') "
    "WHERE name_space = $1::text AND resource = $2::text "
    "AND owner = $3::text AND expires_at > pg_catalog.clock_timestamp() "
    "RETURNING 1";

// A release need not wait for the disk: if a crash undoes it, the lease runs
// out. The row lock on our own row keeps `expires_at` what was read.
constexpr std::string_view free_sql =
    "UPDATE lastdoor.leases SET expires_at = '-infinity' "
    "WHERE name_space = $1::text AND resource = $2::text "
    "AND owner = $3::text AND (expires_at > pg_catalog.clock_timestamp() "
    "OR expires_at = '-infinity') "
    "RETURNING pg_catalog.set_config('synchronous_commit', 'off', true)";

std::int64_t microseconds_up(duration d) noexcept {
  return std::chrono::ceil<std::chrono::microseconds>(d).count();
}

duration from_microseconds(std::int64_t us) noexcept {
  return std::chrono::microseconds{us};
}

arguments named(std::string_view name_space, const resource_name& resource) {
  arguments with;
  with.add(name_space).add(std::string_view{resource.str()});
  return with;
}

// A row that breaks a constraint of ours is not one that lastdoor wrote; no
// caller can do better.
error judged(const error& e) {
  if (e.code() != errc::precondition_failed) {
    return e;
  }
  return fail(errc::damaged, e.text()).backend(e.backend());
}

result<answer> run(connection& db, std::string_view sql, std::string_view doing,
                   effect does, const arguments& with, time_point deadline) {
  auto done = db.run({sql, doing, does, deadline}, with);
  if (!done) {
    return judged(done.error());
  }
  return done;
}

}  // namespace

std::string_view take_text() noexcept { return take_sql; }

std::string_view free_text() {
  // Whoever waits holds a shared lock on the name, so an exclusive one is not
  // to be had. NOTIFY makes all commits of a database queue, so it is sent
  // only to somebody.
  static const std::string sql = fmt::format(
      "{}, CASE WHEN pg_catalog.pg_try_advisory_xact_lock({}) THEN NULL "
      "ELSE pg_catalog.pg_notify('{}', $1::text || '/' || $2::text)::text END",
      free_sql, waiting_key, channel);
  return sql;
}

result<std::optional<granted>> take(connection& db, std::string_view name_space,
                                    const lease_request& request) {
  auto with = named(name_space, request.resource);
  with.add(std::string_view{request.owner.str()})
      .add(std::string_view{request.holder})
      .add(microseconds_up(request.ttl));
  const postgres_driver::remedy undo{
      free_text(), named(name_space, request.resource)
                       .add(std::string_view{request.owner.str()})};
  auto row = db.run(
      {take_sql, acquiring, effect::writes, request.deadline, &undo}, with);
  if (!row) {
    return judged(row.error());
  }
  if (row->empty()) {
    return std::optional<granted>{};
  }
  return std::optional{granted{row->integer(0, 0), row->integer(0, 1),
                               from_microseconds(row->integer(0, 2))}};
}

result<row_state> look(connection& db, std::string_view name_space,
                       const resource_name& resource, time_point deadline) {
  auto row = run(db, look_sql, inspecting, effect::reads,
                 named(name_space, resource), deadline);
  if (!row) {
    return row.error();
  }
  return row_state{.same_source = row->truth(0, 0),
                   .exists = row->truth(0, 1),
                   .released = row->truth(0, 2),
                   .token = row->integer(0, 3),
                   .left = from_microseconds(row->integer(0, 4)),
                   .owner = std::string{row->text(0, 5)},
                   .holder = std::string{row->text(0, 6)}};
}

result<void> add(connection& db, std::string_view name_space,
                 const resource_name& resource, time_point deadline) {
  // A row that nobody owns: whether it was made or not makes no difference.
  auto done = run(db, add_sql, acquiring, effect::reads,
                  named(name_space, resource), deadline);
  if (!done) {
    return done.error();
  }
  return {};
}

result<bool> extend(connection& db, std::string_view name_space,
                    const resource_name& resource, const owner_id& owner,
                    duration ttl, time_point deadline) {
  auto with = named(name_space, resource);
  with.add(std::string_view{owner.str()}).add(microseconds_up(ttl));
  auto row = run(db, extend_sql, renewing, effect::writes, with, deadline);
  if (!row) {
    return row.error();
  }
  return !row->empty();
}

result<bool> free_lease(connection& db, std::string_view name_space,
                        const resource_name& resource, const owner_id& owner,
                        time_point deadline) {
  auto with = named(name_space, resource);
  with.add(std::string_view{owner.str()});
  auto row = run(db, free_text(), releasing, effect::writes, with, deadline);
  if (!row) {
    return row.error();
  }
  return !row->empty();
}

result<void> raise(connection& db, std::int64_t above, time_point deadline) {
  arguments with;
  with.add(above);
  auto done = run(db, "SELECT lastdoor.raise_token($1::bigint)", raising,
                  effect::writes, with, deadline);
  if (!done) {
    return done.error();
  }
  return {};
}

result<void> greet(connection& db, time_point deadline) {
  auto standby = run(db, "SELECT pg_catalog.pg_is_in_recovery()", opening,
                     effect::reads, {}, deadline);
  if (!standby) {
    return standby.error();
  }
  if (standby->truth(0, 0)) {
    return fail(
        errc::unavailable,
        fmt::format("{} is a standby, which grants nothing", db.where().shown));
  }
  if (auto ok = postgres::check_schema(db, postgres::leases_version, deadline);
      !ok) {
    return ok.error();
  }
  auto source = run(
      db,
      "SELECT EXISTS (SELECT FROM lastdoor.token_source AS s WHERE "
      "s.system = lastdoor.this_system() AND s.timeline = pg_catalog.substr("
      "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), "
      "1, 8)), EXISTS (SELECT FROM pg_catalog.pg_sequence AS q WHERE "
      "q.seqrelid = 'lastdoor.token'::regclass AND q.seqcache = 1 "
      "AND q.seqincrement = 1 AND NOT q.seqcycle "
      "AND q.seqmax = 9007199254740991)",
      opening, effect::reads, {}, deadline);
  if (!source) {
    return source.error();
  }
  if (!source->truth(0, 1)) {
    return fail(errc::misconfigured,
                "the sequence lastdoor.token was altered: it must have CACHE "
                "1, INCREMENT 1, NO CYCLE and its maximum, or tokens are not "
                "in order");
  }
  return source->truth(0, 0) ? result<void>{} : raise(db, 0, deadline);
}

result<void> check(connection& db, time_point deadline) {
  auto sound = run(db,
                   "SELECT (SELECT last_value FROM lastdoor.token) >= "
                   "coalesce((SELECT max(token) FROM lastdoor.leases), 0)",
                   opening, effect::reads, {}, deadline);
  if (!sound) {
    return sound.error();
  }
  return sound->truth(0, 0) ? result<void>{} : raise(db, 0, deadline);
}

}  // namespace lastdoor::postgres_leases

#include "locks/postgres_advisory_table.hpp"

#include <fmt/format.h>

namespace lastdoor::postgres_leases {

namespace {

using postgres_driver::answer;
using postgres_driver::arguments;
using postgres_driver::effect;

constexpr std::string_view acquiring = "acquiring the lock";
constexpr std::string_view renewing = "renewing the lock";
constexpr std::string_view releasing = "releasing the lock";
constexpr std::string_view inspecting = "looking at the lock";

constexpr std::string_view key_sql =
    "lastdoor.lock_key($1::text || '/' || $2::text)";

// A lock is taken once per session at most: the condition is worked out apart
// from the rows, which a concurrent update may make the server visit twice.
constexpr std::string_view take_sql =
    "WITH won AS MATERIALIZED (SELECT pg_catalog.pg_try_advisory_lock({key}) "
    "AS got) "
    "UPDATE lastdoor.leases SET owner = $3::text, "
    "token = greatest(pg_catalog.nextval('lastdoor.token'), token + 1), "
    "holder = $4::text, expires_at = pg_catalog.clock_timestamp() "
    "+ $5::bigint * interval '1 microsecond' "
    "FROM won WHERE won.got "
    "AND name_space = $1::text AND resource = $2::text "
    "AND (SELECT s.timeline FROM lastdoor.token_source AS s) "
    "= pg_catalog.substr(pg_catalog.pg_walfile_name("
    "pg_catalog.pg_current_wal_insert_lsn()), 1, 8) "
    "RETURNING token, pg_catalog.currval('lastdoor.token'), "
    "(EXTRACT(epoch FROM expires_at - pg_catalog.clock_timestamp()) "
    "* 1000000)::bigint, "
    "pg_catalog.set_config('idle_session_timeout', $6::text, false), "
    "CASE WHEN pg_catalog.current_setting('synchronous_commit') "
    "IN ('off', 'local') "
    "THEN pg_catalog.set_config('synchronous_commit', 'on', true) END";

// The row says until when at the latest, for people; the session's time limit
// is what counts. Losing the row's new time in a crash loses nothing, since
// the session is lost as well.
constexpr std::string_view extend_sql =
    "UPDATE lastdoor.leases SET expires_at = greatest(expires_at, "
    "pg_catalog.clock_timestamp() + $4::bigint * interval '1 microsecond') "
    "WHERE name_space = $1::text AND resource = $2::text "
    "AND owner = $3::text AND expires_at <> '-infinity' "
    "RETURNING pg_catalog.set_config('synchronous_commit', 'off', true), "
    "pg_catalog.set_config('idle_session_timeout', greatest("
    "pg_catalog.ceil(EXTRACT(epoch FROM "
    "expires_at - pg_catalog.clock_timestamp()) * 1000), 1)::bigint::text, "
    "false)";

constexpr std::string_view free_sql =
    "UPDATE lastdoor.leases SET expires_at = '-infinity' "
    "WHERE name_space = $1::text AND resource = $2::text "
    "AND owner = $3::text "
    "RETURNING pg_catalog.pg_advisory_unlock({key}), "
    "pg_catalog.set_config('idle_session_timeout', '0', false), "
    "pg_catalog.set_config('synchronous_commit', 'off', true), "
    "CASE WHEN pg_catalog.pg_try_advisory_xact_lock({waiting}) THEN NULL "
    "ELSE pg_catalog.pg_notify('{channel}', $1::text || '/' || $2::text)"
    "::text END";

// A lock of 64 bits is listed in two halves.
constexpr std::string_view locked_sql =
    "SELECT EXISTS (SELECT FROM pg_catalog.pg_locks AS l, "
    "(SELECT {key} AS k) AS name WHERE l.locktype = 'advisory' "
    "AND l.granted AND l.objsubid = 1 "
    "AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d "
    "WHERE d.datname = pg_catalog.current_database()) "
    "AND (l.classid::bigint << 32 | l.objid::bigint) = name.k)";

std::string with_names(std::string_view sql) {
  return fmt::format(fmt::runtime(sql), fmt::arg("key", key_sql),
                     fmt::arg("waiting", waiting_key),
                     fmt::arg("channel", channel));
}

arguments named(std::string_view name_space, const resource_name& resource) {
  arguments with;
  with.add(name_space).add(std::string_view{resource.str()});
  return with;
}

std::int64_t microseconds_up(duration d) noexcept {
  return std::chrono::ceil<std::chrono::microseconds>(d).count();
}

}  // namespace

result<std::optional<granted>> take_advisory(connection& db,
                                             std::string_view name_space,
                                             const lease_request& request) {
  static const std::string sql = with_names(take_sql);
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(request.ttl);
  auto with = named(name_space, request.resource);
  with.add(std::string_view{request.owner.str()})
      .add(std::string_view{request.holder})
      .add(microseconds_up(request.ttl))
      .add(ms.count());
  auto row = db.run({sql, acquiring, effect::writes, request.deadline}, with);
  if (!row) {
    return row.error();
  }
  if (row->empty()) {
    return std::optional<granted>{};
  }
  return std::optional{granted{row->integer(0, 0), row->integer(0, 1),
                               std::chrono::microseconds{row->integer(0, 2)}}};
}

result<advisory_state> look_advisory(connection& db,
                                     std::string_view name_space,
                                     const resource_name& resource,
                                     time_point deadline) {
  static const std::string sql = with_names(locked_sql);
  auto row = look(db, name_space, resource, deadline);
  if (!row) {
    return row.error();
  }
  auto locked = db.run({sql, inspecting, effect::reads, deadline},
                       named(name_space, resource));
  if (!locked) {
    return locked.error();
  }
  return advisory_state{*std::move(row), locked->truth(0, 0)};
}

result<bool> extend_advisory(connection& db, std::string_view name_space,
                             const grant& held, duration ttl,
                             time_point deadline) {
  auto with = named(name_space, held.resource());
  with.add(std::string_view{held.owner().str()}).add(microseconds_up(ttl));
  auto row = db.run({extend_sql, renewing, effect::writes, deadline}, with);
  if (!row) {
    return row.error();
  }
  return !row->empty();
}

result<bool> free_advisory(connection& db, std::string_view name_space,
                           const grant& held, time_point deadline) {
  static const std::string sql = with_names(free_sql);
  auto with = named(name_space, held.resource());
  with.add(std::string_view{held.owner().str()});
  auto row = db.run({sql, releasing, effect::writes, deadline}, with);
  if (!row) {
    return row.error();
  }
  return row->rows() == 1 && row->truth(0, 0);
}

}  // namespace lastdoor::postgres_leases

// postgres_lease_table.hpp: the statements of the lease service.
//
// Each is one autocommit statement in one round trip. None changes a setting
// beyond its own transaction, so all of them work through a pooler.
//
// Thread safety: as the connection that is given: one thread at a time.
#pragma once

#include <lastdoor/lock_backend.hpp>
#include <optional>
#include <string>

#include "drivers/postgres.hpp"

namespace lastdoor::postgres_leases {

using postgres_driver::connection;

// A grant as the server made it.
struct granted {
  std::int64_t token;
  // What the counter gave. Below the token when the counter was set back.
  std::int64_t drawn;
  // What is left of the lease by the server's clock when it answered.
  duration left;
};

// What the server knows of a resource.
struct row_state {
  // False: the server is not the one that the counter belonged to.
  bool same_source;
  bool exists;
  bool released;
  std::int64_t token;
  duration left;  // zero or less: not held
  std::string owner;
  std::string holder;
};

// Grants the lease if it is free. Nothing when it is not, for a reason that
// `look` tells; nothing is written then.
[[nodiscard]] result<std::optional<granted>> take(connection& db,
                                                  std::string_view name_space,
                                                  const lease_request& request);

[[nodiscard]] result<row_state> look(connection& db,
                                     std::string_view name_space,
                                     const resource_name& resource,
                                     time_point deadline);

// Makes the row of a resource that was never locked.
[[nodiscard]] result<void> add(connection& db, std::string_view name_space,
                               const resource_name& resource,
                               time_point deadline);

// False: the lease is over or foreign.
[[nodiscard]] result<bool> extend(connection& db, std::string_view name_space,
                                  const resource_name& resource,
                                  const owner_id& owner, duration ttl,
                                  time_point deadline);

// Frees the lease of `owner`, whatever its token. False: over or foreign.
// True also when it was released before.
[[nodiscard]] result<bool> free_lease(connection& db,
                                      std::string_view name_space,
                                      const resource_name& resource,
                                      const owner_id& owner,
                                      time_point deadline);

// Raises the counter above `above`, every lease's token and, on a server that
// is new to it, the clock.
[[nodiscard]] result<void> raise(connection& db, std::int64_t above,
                                 time_point deadline);

// To be run on every new connection: refuses a standby and a counter that was
// altered, and raises the counter on a server that is new to it.
[[nodiscard]] result<void> greet(connection& db, time_point deadline);

// Once per service: the migrations are there, and the counter is not below a
// lease's token.
[[nodiscard]] result<void> check(connection& db, time_point deadline);

// The texts of `take` and `free_lease`, for measuring them by themselves.
[[nodiscard]] std::string_view take_text() noexcept;
[[nodiscard]] std::string_view free_text();

// The key of the advisory lock that waiters of a resource share, and that
// whoever releases it looks at: SQL for parameters that start with name space
// and resource. Never stored, so the server's own hash will do.
inline constexpr std::string_view waiting_key =
    "pg_catalog.hashtextextended('lastdoor/wait/' || $1::text || '/' || "
    "$2::text, 0)";

// What is notified of when somebody waits. The payload is "name
// space/resource".
inline constexpr std::string_view channel = "lastdoor";

}  // namespace lastdoor::postgres_leases

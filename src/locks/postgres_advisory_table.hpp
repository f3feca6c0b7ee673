// postgres_advisory_table.hpp: the statements of the advisory lock service.
//
// The lock is a session's; the row beside it carries the token, the holder
// and the name in full. The server ends a session that is silent for longer
// than the TTL, and with it the lock: that is how a lease ends whose holder
// is stopped, cut off or gone without a word.
//
// Thread safety: as the connection that is given: one thread at a time.
#pragma once

#include "locks/postgres_lease_table.hpp"

namespace lastdoor::postgres_leases {

// Takes the lock and the row, for as long as this session lives and is heard
// of. Nothing when the lock is taken or something has to be done first.
[[nodiscard]] result<std::optional<granted>> take_advisory(
    connection& db, std::string_view name_space, const lease_request& request);

struct advisory_state {
  row_state row;
  bool locked;  // by some session
};
[[nodiscard]] result<advisory_state> look_advisory(
    connection& db, std::string_view name_space, const resource_name& resource,
    time_point deadline);

// False: the row is not ours, so the lock is not to be relied on.
[[nodiscard]] result<bool> extend_advisory(connection& db,
                                           std::string_view name_space,
                                           const grant& held, duration ttl,
                                           time_point deadline);

// Gives lock and row back. False: the lock was not held by this session.
[[nodiscard]] result<bool> free_advisory(connection& db,
                                         std::string_view name_space,
                                         const grant& held,
                                         time_point deadline);

}  // namespace lastdoor::postgres_leases

// redlock_setup.hpp: what setting up and changing a cluster share.
//
// Thread safety: a session holds the loop's lock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "redlock_servers.hpp"

namespace lastdoor::redlock {

// `unavailable`: who did not answer, and why.
[[nodiscard]] error silent(const servers& all, const std::vector<sight>& found);

// `misconfigured` unless the server loses nothing in a crash.
[[nodiscard]] result<void> check_durable(redis_driver::session& in, server& s,
                                         time_point until);

// In words, with what to do about it.
[[nodiscard]] std::string damaged_counter(const servers& all);

// A counter as it stands on a server; 0 for none.
[[nodiscard]] std::int64_t number_of(const std::string& counter);

}  // namespace lastdoor::redlock

// postgres_common.hpp: what the two lock services in Postgres share.
//
// Thread safety: free functions.
#pragma once

#include <lastdoor/locks/postgres.hpp>

#include "drivers/postgres_pool.hpp"

namespace lastdoor {

inline constexpr duration postgres_max_ttl = std::chrono::hours{24};

[[nodiscard]] inline error not_owner() {
  return fail(errc::not_owner,
              "the lease is over, or somebody else's; a new grant is needed");
}

// Says of what, whatever went wrong.
template <class T>
result<T> about(const resource_name& resource, result<T> r) {
  if (!r) {
    r.error().about(resource.str());
  }
  return r;
}
template <class T>
result<T> about(const grant& g, result<T> r) {
  if (!r) {
    r.error().about(g.resource().str()).presented(g.token().value());
  }
  return r;
}

[[nodiscard]] result<void> check_postgres_ttl(duration ttl);

// Until when a holder may rely on a lease that was asked for at `asked`. The
// server's clock and ours are two: a thousandth covers what either is slewed.
[[nodiscard]] inline time_point validity_end(time_point asked,
                                             duration ttl) noexcept {
  return asked + ttl - ttl / 1000;
}

[[nodiscard]] error busy(std::string_view holder, duration left);

// What a service needs to open connections, checked.
struct postgres_setup {
  postgres_driver::endpoint where;
  postgres_driver::open_options connect;
  source_name source;
};
[[nodiscard]] result<postgres_setup> set_up_postgres(
    const std::string& url, const postgres_locks_options& options,
    std::string_view source_prefix);

}  // namespace lastdoor

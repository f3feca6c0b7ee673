#include "locks/postgres_common.hpp"

#include <fmt/format.h>

#include "locks/postgres_lease_table.hpp"

namespace lastdoor {

result<void> check_postgres_ttl(duration ttl) {
  if (ttl < std::chrono::milliseconds{1} || ttl > postgres_max_ttl) {
    return fail(errc::invalid_argument, "a TTL is 1 ms to 24 h");
  }
  return {};
}

error busy(std::string_view holder, duration left) {
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return fail(errc::busy,
              fmt::format("held by '{}' for up to {} ms", holder, ms))
      .retry_after_ms(ms);
}

result<postgres_setup> set_up_postgres(const std::string& url,
                                       const postgres_locks_options& options,
                                       std::string_view source_prefix) {
  if (options.name_space.empty()) {
    return fail(errc::invalid_argument, "a name space must not be empty");
  }
  auto source = source_name::parse(
      fmt::format("{}/{}", source_prefix, options.name_space));
  if (!source) {
    return source.error();
  }
  if (options.call_timeout <= duration{0} || !options.service.time ||
      options.connections == 0) {
    return fail(errc::invalid_argument,
                "a lock service needs a call timeout, a clock and at least "
                "one connection");
  }
  auto where = postgres_driver::parse_endpoint(url);
  if (!where) {
    return where.error();
  }
  // If we are cut off, the server ends what we asked for all the same.
  const auto limit =
      std::chrono::ceil<std::chrono::milliseconds>(options.call_timeout);
  return postgres_setup{
      *std::move(where),
      {.time = options.service.time,
       .greet = postgres_leases::greet,
       .settings = {{"statement_timeout", std::to_string(limit.count())},
                    {"default_transaction_isolation", "read committed"},
                    {"search_path", "pg_catalog"}}},
      *std::move(source)};
}

}  // namespace lastdoor

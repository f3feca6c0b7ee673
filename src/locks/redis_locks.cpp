// Opening: options and URL are checked here, before any traffic.
#include <fmt/format.h>

#include <lastdoor/locks/redis.hpp>

#include "redis_backend.hpp"

namespace lastdoor {

namespace driver = redis_driver;

namespace {

result<void> check(const redis_locks_options& options) {
  if (auto ok = driver::check_name_space(options.name_space); !ok) {
    return ok;
  }
  if (auto ok = driver::check_timeout(options.call_timeout); !ok) {
    return ok;
  }
  if (auto ok = driver::check_timeout(options.replica_timeout); !ok) {
    return ok;
  }
  if (options.wait_replicas < 0) {
    return fail(errc::invalid_argument, "wait_replicas is 0 or more");
  }
  return {};
}

}  // namespace

result<std::unique_ptr<lock_backend>> open_redis_backend(
    std::string_view url, const redis_locks_options& options) {
  if (auto ok = check(options); !ok) {
    return ok.error();
  }
  auto source = source_name::parse("redis/" + options.name_space);
  if (!source) {
    return source.error();
  }
  auto server = driver::server_options(url, options.call_timeout, options.tls);
  if (!server) {
    return server.error();
  }
  auto loop = driver::loop::open(options.service.time);
  if (!loop) {
    return loop.error();
  }
  return std::unique_ptr<lock_backend>{std::make_unique<redis_backend>(
      std::move(*loop), *server, std::move(*source), options)};
}

result<lock_service> open_redis_locks(std::string_view url,
                                      const redis_locks_options& options) {
  auto backend = open_redis_backend(url, options);
  if (!backend) {
    return backend.error();
  }
  return lock_service{std::move(*backend), options.service};
}

}  // namespace lastdoor

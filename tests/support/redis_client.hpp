// redis_client.hpp: one party that acquires leases on Redis, for tests.
#pragma once

#include <lastdoor/locks/redis.hpp>

#include <string>
#include <string_view>

namespace lastdoor::support {

/// A back end of its own. Deadlines are generous unless a test sets one.
class redis_client {
 public:
  explicit redis_client(const std::string& url,
                        redis_locks_options options = {})
      : backend_{open_redis_backend(url, options).value()} {}

  [[nodiscard]] static redis_locks_options patient(
      duration call_timeout = std::chrono::seconds{10}) {
    redis_locks_options options;
    options.call_timeout = call_timeout;
    return options;
  }

  /// One attempt, with a fresh owner.
  [[nodiscard]] result<grant> acquire(std::string_view resource,
                                      duration ttl = std::chrono::seconds{60},
                                      duration limit = std::chrono::seconds{
                                          20}) {
    const auto name = resource_name::parse(resource).value();
    const auto owner = owner_id::generate().value();
    auto got = backend_->try_acquire(
        {name, owner, ttl, "host:1", boot_clock()->now() + limit});
    if (!got) {
      return got.error();
    }
    return grant{name, owner, got->token, backend_->source(), got->valid_until};
  }
  [[nodiscard]] result<time_point> renew(
      const grant& g, duration ttl = std::chrono::seconds{60},
      duration limit = std::chrono::seconds{20}) {
    return backend_->renew(g, ttl, boot_clock()->now() + limit);
  }
  [[nodiscard]] result<void> release(const grant& g,
                                     duration limit = std::chrono::seconds{
                                         20}) {
    return backend_->release(g, boot_clock()->now() + limit);
  }
  [[nodiscard]] result<lease_status> inspect(std::string_view resource) {
    return backend_->inspect(resource_name::parse(resource).value());
  }
  [[nodiscard]] lock_backend& backend() noexcept { return *backend_; }

  /// Acquires and releases; the token, or 0 with a failed test.
  [[nodiscard]] std::int64_t token_of(std::string_view resource);

 private:
  std::unique_ptr<lock_backend> backend_;
};

/// "ok", or the code: reads well in a failed comparison.
template <class T>
[[nodiscard]] std::string outcome_of(const result<T>& r) {
  return r ? "ok" : std::string{name_of(r.code())};
}

/// The same with the server's own word: "unavailable READONLY".
template <class T>
[[nodiscard]] std::string word_of(const result<T>& r) {
  return r ? "ok" : outcome_of(r) + " " + r.error().backend();
}

inline std::int64_t redis_client::token_of(std::string_view resource) {
  auto g = acquire(resource);
  return g && release(*g) ? g->token().value() : 0;
}

/// The keys of the name space "default", as the server has them.
[[nodiscard]] inline std::string lock_key(std::string_view resource) {
  return "lastdoor:{default}:lock:" + std::string{resource};
}
inline const std::string counter_key = "lastdoor:{default}:counter";
inline const std::string marker_key = "lastdoor:{default}:marker";

}  // namespace lastdoor::support

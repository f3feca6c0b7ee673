// lock_contract_client.hpp: what the parts of the lock contract share.
//
// Thread safety: a contender may be used from any thread, as its back end.
#pragma once

#include <gtest/gtest.h>
#include <lastdoor/lock_backend.hpp>
#include <lastdoor/testing/processes.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>

namespace lastdoor::testing {

/// "ok" or the name of the code: reads well in a failed comparison.
template <class T>
[[nodiscard]] std::string outcome_of(const result<T>& r) {
  return r ? "ok" : std::string{name_of(r.code())};
}

/// Lets time go by, where a test is about time or polls.
inline void pause_for(duration d) {
  const auto& time = boot_clock();
  time->make_alarm()->wait_until(time->now() + d);
}

/// True as soon as `holds()`; false when it did not come true in 30 s, far
/// more than any correct back end needs even on a busy machine.
template <class Condition>
[[nodiscard]] bool eventually(const Condition& holds) {
  const auto limit =
      std::chrono::steady_clock::now() + std::chrono::seconds{30};
  while (!holds()) {
    if (std::chrono::steady_clock::now() > limit)
      return false;
    pause_for(std::chrono::milliseconds{2});
  }
  return true;
}

/// The seed of this run, printed; LASTDOOR_TEST_SEED repeats one.
[[nodiscard]] inline std::uint64_t test_seed() {
  const char* given = std::getenv("LASTDOOR_TEST_SEED");
  const std::uint64_t seed = given != nullptr
                                 ? std::strtoull(given, nullptr, 10)
                                 : std::random_device{}();
  std::cout << "seed: LASTDOOR_TEST_SEED=" << seed << '\n';
  return seed;
}

/// One party that acquires leases, with a back end of its own.
class contender {
 public:
  explicit contender(std::unique_ptr<lock_backend> backend,
                     std::string name = "contender")
      : backend_{std::move(backend)}, name_{std::move(name)} {}

  /// One attempt, with a fresh owner.
  [[nodiscard]] result<grant> acquire(std::string_view resource, duration ttl) {
    auto name = resource_name::parse(resource);
    auto owner = owner_id::generate();
    if (!name)
      return name.error();
    if (!owner)
      return owner.error();
    auto got = backend_->try_acquire({*name, *owner, ttl, name_, deadline()});
    if (!got)
      return got.error();
    return grant{*name, *owner, got->token, backend_->source(),
                 got->valid_until};
  }

  /// A lease that will run out soon. On a machine so busy that even the
  /// acquisition takes longer, it tries again with a longer one.
  [[nodiscard]] result<grant> acquire_briefly(std::string_view resource) {
    for (duration ttl = shortest_brief;; ttl *= 2) {
      auto got = acquire(resource, ttl);
      if (got || got.code() != errc::too_slow || ttl >= longest_brief)
        return got;
    }
  }
  static constexpr duration shortest_brief = std::chrono::milliseconds{200};
  static constexpr duration longest_brief = 32 * shortest_brief;

  [[nodiscard]] result<time_point> renew(const grant& g, duration ttl) {
    return backend_->renew(g, ttl, deadline());
  }
  [[nodiscard]] result<void> release(const grant& g) {
    return backend_->release(g, deadline());
  }
  /// Throws `failure` when the service does not tell.
  [[nodiscard]] lease_status inspect(std::string_view resource) {
    return backend_->inspect(resource_name::parse(resource).value()).value();
  }
  [[nodiscard]] lock_backend& backend() noexcept { return *backend_; }

 private:
  // Generous: no test here is about a call that takes long.
  [[nodiscard]] static time_point deadline() {
    return boot_clock()->now() + std::chrono::seconds{20};
  }

  std::unique_ptr<lock_backend> backend_;
  std::string name_;
};

/// The fixture: a private, empty lock service for each test.
template <class Service>
class lock_contract : public ::testing::Test {
 protected:
  [[nodiscard]] contender connect(std::string name = "contender") {
    return contender{service_.connect(), std::move(name)};
  }
  [[nodiscard]] Service& service() noexcept { return service_; }

 private:
  Service service_;
};

}  // namespace lastdoor::testing

// redlock_change_fixture.hpp: servers whose membership a test changes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <lastdoor/testing/processes.hpp>
#include <memory>
#include <string>
#include <vector>

#include "support/redlock_cluster.hpp"

namespace lastdoor::support {

using namespace std::chrono_literals;
using lastdoor::testing::child_process;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using urls = std::vector<std::string>;
using places = std::vector<std::size_t>;

inline constexpr auto brief = 400ms;  // a max TTL that a test can sit out
inline constexpr const char* marker = "lastdoor:{default}:redlock:marker";
inline constexpr const char* counter = "lastdoor:{default}:redlock:counter";

class RedlockChange : public ::testing::Test {
 protected:
  void SetUp() override { LASTDOOR_NEEDS_REDIS(); }

  // `members` servers that are a cluster, and blank ones behind them.
  void start(unsigned members, unsigned blank, duration max_ttl = brief) {
    all_.clear();
    for (unsigned k = 0; k < members + blank; ++k) {
      all_.push_back(std::make_unique<temp_redis>());
    }
    old_.clear();
    for (unsigned k = 0; k < members; ++k) {
      old_.push_back(all_[k]->url());
    }
    redlock_init(old_, {.max_ttl = max_ttl}, redlock_cluster::patience())
        .value();
  }
  [[nodiscard]] urls named(const places& which) const {
    urls out;
    for (const auto k : which) {
      out.push_back(all_[k]->url());
    }
    return out;
  }
  temp_redis& at(std::size_t k) { return *all_[k]; }

  static std::unique_ptr<lock_backend> open(const urls& list) {
    return open_redlock_backend(list, redlock_cluster::patience()).value();
  }
  static result<grant> acquire(lock_backend& locks, std::string_view name,
                               duration ttl = 300ms) {
    const auto resource = resource_name::parse(name).value();
    const auto owner = owner_id::generate().value();
    auto got = locks.try_acquire(
        {resource, owner, ttl, "test", boot_clock()->now() + 10s});
    if (!got) {
      return got.error();
    }
    return grant{resource, owner, got->token, locks.source(), got->valid_until};
  }
  // A grant of a resource of its own, tried until there is one.
  static std::int64_t token(const urls& list) {
    auto locks = open(list);
    result<grant> got = acquire(*locks, "first");
    (void)eventually([&] {
      static int n = 0;
      got = acquire(*locks, std::to_string(++n));
      return got.has_value();
    });
    return got ? got->token().value() : -1;
  }
  // What one attempt comes to.
  static std::string outcome(lock_backend& locks) {
    static int n = 0;
    const auto got = acquire(locks, "once-" + std::to_string(++n));
    return got ? "ok" : std::string{name_of(got.error().code())};
  }
  static std::string outcome(const urls& list) { return outcome(*open(list)); }

  static result<redlock_change_report> change(
      const urls& from, const urls& to, const redlock_change_options& how = {},
      redlock_options options = redlock_cluster::patience()) {
    return redlock_change(from, to, how, options);
  }
  // With servers that do not answer.
  static redlock_options hasty() {
    redlock_options o;
    o.node_timeout = 1s;
    o.call_timeout = 2s;
    return o;
  }
  static std::string outcome(const result<redlock_change_report>& r) {
    return r ? "ok" : std::string{name_of(r.error().code())};
  }
  static std::vector<std::string> conditions(
      const urls& list,
      const redlock_options& o = redlock_cluster::patience()) {
    static const char* const names[] = {"admitted", "quarantined",
                                        "unreachable", "foreign", "closed"};
    std::vector<std::string> out;
    for (const auto& s : redlock_status(list, o).value()) {
      out.emplace_back(names[static_cast<int>(s.now)]);
    }
    return out;
  }
  // A change that dies before its step `n`, in a process of its own. False
  // when it was done before that.
  static bool crash_before(int n, const urls& from, const urls& to) {
    child_process<int> dying{[&](const auto&) {
      redlock_change_options how;
      how.progress = [&, left = n](std::string_view) mutable {
        if (left-- == 0) {
          ::_exit(77);
        }
      };
      return change(from, to, how) ? 0 : 1;
    }};
    const int code = dying.wait();
    EXPECT_TRUE(code == 0 || code == 77) << code;
    return code == 77;
  }

  std::vector<std::unique_ptr<temp_redis>> all_;
  urls old_;
};

}  // namespace lastdoor::support

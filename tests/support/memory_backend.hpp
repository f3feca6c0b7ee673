// memory_backend.hpp: a double of our own interface, for tests of what is
// built on it. It is no double of a database: back ends have real ones.
//
// A `memory_server` holds the leases; each `memory_backend` is one process's
// connection to it and can be told what goes wrong with which call.
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <array>
#include <atomic>
#include <lastdoor/lock_backend.hpp>
#include <lastdoor/testing/fake_clock.hpp>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lastdoor::test_support {

using testing::fake_clock;

inline source_name memory_source() {
  return source_name::parse("memory/test").value();
}

class memory_server {
 public:
  explicit memory_server(std::shared_ptr<fake_clock> time)
      : time_{std::move(time)} {}

  result<lease_answer> acquire(const lease_request& r, time_point started) {
    const std::lock_guard lock{mutex_};
    row& at = rows_[r.resource.str()];
    const time_point now = time_->now();
    if (at.expires > now) {
      return fail(errc::busy, "held by " + at.owner.substr(0, 8))
          .retry_after_ms((at.expires - now) / std::chrono::milliseconds{1});
    }
    at = {r.owner.str(), now + r.ttl, r.ttl};
    owners_.push_back(r.owner.str());
    return lease_answer{fencing_token::from(++counter_).value(),
                        started + r.ttl};
  }

  result<time_point> renew(const grant& g, duration ttl, time_point started) {
    const std::lock_guard lock{mutex_};
    row& at = rows_[g.resource().str()];
    if (at.owner != g.owner().str() || at.expires <= time_->now())
      return fail(errc::not_owner, "no such lease");
    at.expires = time_->now() + ttl;
    return started + ttl;
  }

  // The owner stays behind, so a repeated release knows its own success.
  result<void> release(const grant& g) {
    const std::lock_guard lock{mutex_};
    row& at = rows_[g.resource().str()];
    if (at.owner != g.owner().str())
      return fail(errc::not_owner, "no such lease");
    at.expires = time_point::min();
    if (forgetful_)
      at.owner.clear();
    return {};
  }

  // Somebody else holds the resource from now on, whoever held it before.
  void take_over(const std::string& resource, duration for_how_long) {
    const std::lock_guard lock{mutex_};
    ++counter_;
    rows_[resource] = {"somebody else", time_->now() + for_how_long, {}};
  }
  void let_go(const std::string& resource) {
    const std::lock_guard lock{mutex_};
    rows_[resource].expires = time_point::min();
  }
  // A released owner is not remembered any more.
  void forget_owners() { forgetful_ = true; }

  [[nodiscard]] bool held(const std::string& resource) {
    const std::lock_guard lock{mutex_};
    return rows_[resource].expires > time_->now();
  }
  [[nodiscard]] time_point expires(const std::string& resource) {
    const std::lock_guard lock{mutex_};
    return rows_[resource].expires;
  }
  [[nodiscard]] std::vector<std::string> owners() {
    const std::lock_guard lock{mutex_};
    return owners_;
  }
  [[nodiscard]] std::int64_t counter() {
    const std::lock_guard lock{mutex_};
    return counter_;
  }
  void raise(std::int64_t floor) {
    const std::lock_guard lock{mutex_};
    counter_ = std::max(counter_, floor);
  }

 private:
  struct row {
    std::string owner;
    time_point expires{time_point::min()};
    duration ttl{};
  };
  std::mutex mutex_;
  std::shared_ptr<fake_clock> time_;
  std::map<std::string, row> rows_;
  std::vector<std::string> owners_;
  std::int64_t counter_{0};
  std::atomic<bool> forgetful_{false};
};

enum class verb : std::uint8_t { acquire, renew, release };

struct fault {
  enum class kind : std::uint8_t {
    none,
    error,         // nothing happens, `code` is the answer
    lost_request,  // nothing happens, in_doubt
    lost_reply,    // it happens, in_doubt
    hang,          // sleeps until the deadline, then lost_request
    stuck,         // sleeps until `unstick()`, then all goes well
    slow,          // it happens, and `takes` passes before the answer
    boast,         // it happens, and the answer promises an hour too much
    throws,
  };
  kind what{kind::none};
  errc code{errc::unavailable};
  duration takes{0};
};

class memory_backend final : public lock_backend {
 public:
  struct limits {
    duration max_ttl{std::chrono::hours{24}};
    duration call_timeout{std::chrono::seconds{1}};
  };

  memory_backend(std::shared_ptr<memory_server> server,
                 std::shared_ptr<fake_clock> time, limits l)
      : server_{std::move(server)}, time_{std::move(time)}, limits_{l} {}

  static constexpr int for_ever = std::numeric_limits<int>::max();
  static constexpr int once = 1;

  void fails(verb v, fault f, int times) {
    const std::lock_guard lock{mutex_};
    at(v).what = f;
    at(v).times = times;
  }
  void heal(verb v) { fails(v, {}, 0); }

  [[nodiscard]] int calls(verb v) {
    const std::lock_guard lock{mutex_};
    return at(v).calls;
  }
  [[nodiscard]] int calls() {
    return calls(verb::acquire) + calls(verb::renew) + calls(verb::release);
  }
  // When each call of this verb began.
  [[nodiscard]] std::vector<time_point> times(verb v) {
    const std::lock_guard lock{mutex_};
    return at(v).began;
  }
  [[nodiscard]] time_point last_deadline(verb v) {
    const std::lock_guard lock{mutex_};
    return at(v).deadline;
  }
  [[nodiscard]] int most_at_once() {
    const std::lock_guard lock{mutex_};
    return most_inside_;
  }
  [[nodiscard]] int watchers() {
    const std::lock_guard lock{mutex_};
    return static_cast<int>(bells_.size());
  }
  void hint() {
    const std::lock_guard lock{mutex_};
    for (alarm* b : bells_)
      b->ring();
  }
  void offer_hints() {
    const std::lock_guard lock{mutex_};
    hints_ = true;
  }
  void unstick() {
    const std::lock_guard lock{mutex_};
    unstuck_ = true;
    if (stuck_on_ != nullptr)
      stuck_on_->ring();
  }

  [[nodiscard]] const source_name& source() const noexcept override {
    return source_;
  }
  [[nodiscard]] duration max_ttl() const noexcept override {
    return limits_.max_ttl;
  }
  [[nodiscard]] duration call_timeout() const noexcept override {
    return limits_.call_timeout;
  }

  [[nodiscard]] result<lease_answer> try_acquire(
      const lease_request& r) override {
    return call<lease_answer>(verb::acquire, r.deadline, [&](time_point t) {
      return server_->acquire(r, t);
    });
  }
  [[nodiscard]] result<time_point> renew(const grant& held, duration ttl,
                                         time_point deadline) override {
    return call<time_point>(verb::renew, deadline, [&](time_point t) {
      return server_->renew(held, ttl, t);
    });
  }
  [[nodiscard]] result<void> release(const grant& held,
                                     time_point deadline) override {
    return call<void>(verb::release, deadline,
                      [&](time_point) { return server_->release(held); });
  }
  [[nodiscard]] result<lease_status> inspect(
      const resource_name& resource) override {
    lease_status s;
    s.held = server_->held(resource.str());
    return s;
  }
  [[nodiscard]] result<void> raise_floor(mark floor) override {
    server_->raise(floor.value());
    return {};
  }
  [[nodiscard]] std::shared_ptr<void> watch(const resource_name& /*resource*/,
                                            alarm& bell) override {
    const std::lock_guard lock{mutex_};
    if (!hints_)
      return nullptr;
    bells_.push_back(&bell);
    return {&bell, [this](alarm* gone) {
              const std::lock_guard again{mutex_};
              std::erase(bells_, gone);
            }};
  }

 private:
  struct plan {
    fault what;
    int times{0};
    int calls{0};
    time_point deadline;
    std::vector<time_point> began;
  };

  plan& at(verb v) { return plans_[static_cast<std::size_t>(v)]; }

  fault begin(verb v, time_point deadline) {
    const std::lock_guard lock{mutex_};
    plan& p = at(v);
    ++p.calls;
    p.deadline = deadline;
    p.began.push_back(time_->now());
    most_inside_ = std::max(most_inside_, ++inside_);
    if (p.times == 0)
      return {};
    if (p.times != for_ever)
      --p.times;
    return p.what;
  }

  void sleep_until(time_point t) { time_->make_alarm()->wait_until(t); }

  void sleep_until_unstuck() {
    const auto bell = time_->make_alarm();
    {
      const std::lock_guard lock{mutex_};
      if (unstuck_)
        return;
      stuck_on_ = bell.get();
    }
    while (!bell->wait_until(time_point::max())) {
    }
    const std::lock_guard lock{mutex_};
    stuck_on_ = nullptr;
  }

  template <class T, class F>
  result<T> call(verb v, time_point deadline, F&& effect) {
    const fault f = begin(v, deadline);
    result<T> answer = carry_out<T>(f, deadline, effect);
    const std::lock_guard lock{mutex_};
    --inside_;
    return answer;
  }

  template <class T, class F>
  result<T> carry_out(const fault& f, time_point deadline, F&& effect) {
    const time_point started = time_->now();
    const error lost = fail(errc::in_doubt, "the answer was lost");
    switch (f.what) {
      case fault::kind::none:
        return effect(started);
      case fault::kind::error:
        return fail(f.code, "told to fail");
      case fault::kind::lost_request:
        return lost;
      case fault::kind::lost_reply:
        effect(started).ignore();
        return lost;
      case fault::kind::hang:
        sleep_until(deadline);
        return lost;
      case fault::kind::stuck:
        sleep_until_unstuck();
        return effect(started);
      case fault::kind::slow: {
        auto answer = effect(started);
        time_->jump(f.takes);
        return answer;
      }
      case fault::kind::boast: {
        auto answer = effect(started);
        if constexpr (std::is_same_v<T, lease_answer>) {
          answer->valid_until += std::chrono::hours{1};
        } else if constexpr (std::is_same_v<T, time_point>) {
          *answer += std::chrono::hours{1};
        }
        return answer;
      }
      case fault::kind::throws:
        throw std::runtime_error{"told to throw"};
    }
    return lost;
  }

  std::shared_ptr<memory_server> server_;
  std::shared_ptr<fake_clock> time_;
  const limits limits_;
  const source_name source_{memory_source()};

  std::mutex mutex_;
  std::array<plan, 3> plans_;
  std::vector<alarm*> bells_;
  alarm* stuck_on_{nullptr};
  int inside_{0};
  int most_inside_{0};
  bool unstuck_{false};
  bool hints_{false};
};

}  // namespace lastdoor::test_support

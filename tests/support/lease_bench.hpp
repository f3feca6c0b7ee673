// lease_bench.hpp: a service on a fake clock and a memory back end, and what
// its observer was told.
#pragma once

#include <algorithm>
#include <atomic>
#include <lastdoor/lock_service.hpp>
#include <lastdoor/testing/fake_clock.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/memory_backend.hpp"

namespace lastdoor::test_support {

class recorder final : public observer {
 public:
  struct entry {
    event_kind kind;
    std::string resource;
    std::int64_t token;
    std::optional<errc> why;
    duration took;
  };

  void on_event(const event& e) noexcept override {
    const std::lock_guard lock{mutex_};
    entries_.push_back(
        {e.kind, std::string{e.resource}, e.token,
         e.why != nullptr ? std::optional{e.why->code()} : std::nullopt,
         e.took});
  }

  [[nodiscard]] std::vector<entry> entries() {
    const std::lock_guard lock{mutex_};
    return entries_;
  }
  [[nodiscard]] int count(event_kind kind) {
    const std::lock_guard lock{mutex_};
    return static_cast<int>(
        std::count_if(entries_.begin(), entries_.end(),
                      [kind](const entry& e) { return e.kind == kind; }));
  }

 private:
  std::mutex mutex_;
  std::vector<entry> entries_;
};

// One process: a service and its connection to the server.
struct lease_bench {
  explicit lease_bench(memory_backend::limits limits = {},
                       std::shared_ptr<memory_server> shared = nullptr,
                       std::shared_ptr<fake_clock> clock = nullptr,
                       std::optional<std::uint64_t> seed = std::nullopt)
      : time{clock ? std::move(clock) : std::make_shared<fake_clock>()},
        server{shared ? std::move(shared)
                      : std::make_shared<memory_server>(time)} {
    auto made = std::make_unique<memory_backend>(server, time, limits);
    backend = made.get();
    locks.emplace(std::move(made),
                  lock_service_options{
                      .time = time, .observe = told, .jitter_seed = seed});
  }

  // A second process that talks to the same server.
  [[nodiscard]] std::unique_ptr<lease_bench> another(
      memory_backend::limits limits = {}) const {
    return std::make_unique<lease_bench>(limits, server, time);
  }

  [[nodiscard]] result<lease> acquire(const acquire_options& options = {},
                                      std::string_view resource = "r") {
    return locks->acquire(resource, options);
  }

  std::shared_ptr<fake_clock> time;
  std::shared_ptr<memory_server> server;
  std::shared_ptr<recorder> told = std::make_shared<recorder>();
  memory_backend* backend{nullptr};
  std::optional<lock_service> locks;
};

// Counts how often a stop token fired, from the first to the last moment.
class bell_counter {
 public:
  explicit bell_counter(const std::stop_token& token)
      : callback_{token, ring{&count_}} {}
  [[nodiscard]] int count() const { return count_.load(); }

 private:
  struct ring {
    std::atomic<int>* count;
    void operator()() const noexcept { ++*count; }
  };
  std::atomic<int> count_{0};
  std::stop_callback<ring> callback_;
};

// An acquisition on a thread of its own; destroyed only when it is over.
class acquirer {
 public:
  acquirer(lease_bench& bench, acquire_options options,
           std::string resource = "r")
      : thread_{[this, &bench, options = std::move(options),
                 resource = std::move(resource)] {
          got_.emplace(bench.locks->acquire(resource, options));
          took_ = bench.time->now();
          done_ = true;
        }} {}
  ~acquirer() {
    if (thread_.joinable())
      thread_.join();
  }
  acquirer(const acquirer&) = delete;
  acquirer& operator=(const acquirer&) = delete;

  [[nodiscard]] bool done() const { return done_.load(); }
  // Waits for it.
  [[nodiscard]] result<lease>& got() {
    if (thread_.joinable())
      thread_.join();
    return *got_;
  }
  [[nodiscard]] time_point ended_at() {
    if (thread_.joinable())
      thread_.join();
    return took_;
  }

 private:
  std::optional<result<lease>> got_;
  time_point took_;
  std::atomic<bool> done_{false};
  std::thread thread_;  // last: it uses the rest
};

}  // namespace lastdoor::test_support

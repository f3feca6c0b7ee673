// delayed_actions.hpp: what is to be done later, by whoever looks in.
//
// Thread safety: one thread at a time.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <utility>
#include <vector>

namespace lastdoor::simulation {

class delayed_actions {
 public:
  using moment = std::chrono::steady_clock::time_point;

  void add(moment when, std::function<void()> what) {
    all_.push_back({when, std::move(what)});
  }

  /// In the order in which they were added. They may add others.
  void run_what_is_due() {
    const auto now = std::chrono::steady_clock::now();
    const auto due = std::stable_partition(
        all_.begin(), all_.end(), [&](const auto& a) { return a.when > now; });
    std::vector<action> ready(std::make_move_iterator(due),
                              std::make_move_iterator(all_.end()));
    all_.erase(due, all_.end());
    for (const auto& a : ready) {
      a.what();
    }
  }

 private:
  struct action {
    moment when;
    std::function<void()> what;
  };
  std::vector<action> all_;
};

}  // namespace lastdoor::simulation

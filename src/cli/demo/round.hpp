// round.hpp: one round of the demo, several sellers and what befalls them.
//
// Invariants
//   - A pause is SIGSTOP to the real process, and counts only if every thread
//     of it was seen stopped in /proc.
//   - It lasts until another worker has sold under a newer grant of the same
//     SKU, or until the patience is over.
//   - However the round ends, no worker is left.
//
// Thread safety: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <lastdoor/clock.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/demo/events.hpp"
#include "cli/demo/inventory.hpp"
#include "cli/run/signals.hpp"

namespace lastdoor::cli {

struct round_options {
  std::string locks, store;
  bool fenced{false};
  std::uint64_t seed{0};
  int workers{4};
  int skus{3};
  duration lasting{std::chrono::seconds{4}};
  duration ttl{std::chrono::milliseconds{300}};
};

// One pause, from the grant to what became of the late write.
struct demo_pause {
  int worker{0};
  pid_t pid{0};
  demo_event granted{demo_event_kind::here};
  std::int64_t stopped_ns{0};
  std::optional<int> taker;
  demo_event taken{demo_event_kind::sold};  // the taker's sale
  std::int64_t resumed_ns{0};
  std::optional<demo_event> late;  // sold or refused
};

struct round_counts {
  std::int64_t grants{0};
  std::int64_t pauses{0};
  std::int64_t takeovers{0};         // pauses in which another one sold
  std::int64_t stopped_by_clock{0};  // of the late writes after a takeover
  std::int64_t refused_by_store{0};
  std::int64_t accepted{0};
  std::int64_t not_overtaken{0};  // late, but nobody had come in between
  std::int64_t sales{0};
  std::int64_t failures{0};
};

struct round_report {
  bool fenced{false};
  std::int64_t started_ns{0};
  round_counts counts;
  std::vector<demo_balance> balances;
  std::optional<demo_pause> example;
  std::string first_failure;
  [[nodiscard]] std::int64_t lost_units() const noexcept;
  [[nodiscard]] std::int64_t units_off() const noexcept;
  [[nodiscard]] std::int64_t late_refused() const noexcept {
    return counts.stopped_by_clock + counts.refused_by_store;
  }
};

using round_progress =
    std::function<void(duration since_start, const round_counts&)>;

// Tables must be there; `canceled` when a signal ended it. `progress` is
// called about once a second.
[[nodiscard]] result<round_report> run_round(const round_options& o,
                                             demo_inventory& inventory,
                                             const signal_inbox& signals,
                                             const round_progress& progress);

}  // namespace lastdoor::cli

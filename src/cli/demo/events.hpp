// events.hpp: what the demo's workers report, one JSON object a line, and the
// bytes that they are told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cli/output.hpp"

namespace lastdoor::cli {

enum class demo_event_kind : std::uint8_t {
  granted,    // has the lock and has read the stock
  here,       // between reading and writing; waits for a byte
  sold,       // the sale was written
  refused,    // the sale was refused
  lost_time,  // the lease ran out before the stock was looked at
  failed,     // anything else; the worker goes on
};

struct demo_event {
  demo_event_kind kind;
  std::int64_t at_ns{0};  // CLOCK_BOOTTIME
  int sku{0};
  std::int64_t token{0};
  std::int64_t quantity{0};
  std::int64_t stock{0};  // read, or written
  bool by_store{false};   // refused: by the store, not by the own clock
  std::int64_t mark{0};   // refused by the store: the mark it has
  std::string text{};     // the code; of `failed` the message
};

[[nodiscard]] std::string to_line(const demo_event& e);
[[nodiscard]] std::optional<demo_event> parse_event(std::string_view line);

// What a worker is told at its start, on the first line of its input. Not in
// its arguments: URLs may hold passwords, and arguments are public.
struct demo_orders_to_worker {
  std::string locks, store;
  bool fenced{false};
  int index{0};
  int skus{0};
  std::uint64_t seed{0};
  std::int64_t ttl_ms{0};
};

[[nodiscard]] std::string to_line(const demo_orders_to_worker& o);
[[nodiscard]] std::optional<demo_orders_to_worker> parse_orders(
    std::string_view line);

constexpr char demo_go = 'g';   // to a worker that said `here`
constexpr char demo_end = 'e';  // finish what you are at, then end

}  // namespace lastdoor::cli

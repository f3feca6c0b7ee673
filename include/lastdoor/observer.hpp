// observer.hpp: one hook for logs, metrics and alarms.
//
// Invariants
//   - Every state change of a lease and every refusal at a store is reported
//     once. A loss is reported once per lease, whatever caused it.
//   - Nothing secret is passed: no owner value, no URL, no data of a row.
//
// Thread safety: `on_event` is called from the thread in which the event
// happened: a caller's, or one of the service's own. It must be quick, must
// not throw and must not call back into the lease or service that it hears
// of. No lock of lastdoor is held during the call.
#pragma once

#include <cstdint>
#include <lastdoor/clock.hpp>
#include <lastdoor/errors.hpp>
#include <string_view>

namespace lastdoor {

enum class event_kind : std::uint8_t {
  granted,         // a lease was acquired; `took` says how long it took
  acquire_failed,  // an acquisition gave up; `why` says why
  renewed,         // the service confirmed a renewal
  renew_failed,    // one renewal failed; it is tried again until the margin
  lost,            // the lease is over before its release; `why` says why
  released,        // the service confirmed the release
  release_failed,  // the release was not confirmed; the TTL will end it
  refused,         // a store refused a write or a claim; `why` says why
  regressed,       // the token source was behind the store's mark
  floor_raised,    // the token source was raised above the store's mark
};

[[nodiscard]] std::string_view name_of(event_kind kind) noexcept;

struct event {
  event_kind kind;
  std::string_view resource;
  std::int64_t token{0};      // 0: there is none
  const error* why{nullptr};  // null: nothing went wrong
  duration took{0};           // of the call that led to this event
};

class observer {
 public:
  virtual ~observer() = default;
  virtual void on_event(const event& e) noexcept = 0;
};

}  // namespace lastdoor

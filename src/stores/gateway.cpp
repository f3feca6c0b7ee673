#include <fmt/format.h>

#include <algorithm>
#include <lastdoor/gateway.hpp>

namespace lastdoor::detail {

namespace {

void tell(const lock_service& locks, event_kind kind, const grant& g,
          const error* why) noexcept {
  if (!locks.observe())
    return;
  locks.observe()->on_event({.kind = kind,
                             .resource = g.resource().str(),
                             .token = g.token().value(),
                             .why = why,
                             .took = {}});
}

// The store has seen a mark at or above a token that was granted just now.
// Raising the source is right whatever the cause: if it forgot, it goes on
// above the mark; if a newer holder of the same source was faster, the source
// is there already and nothing changes.
result<void> raise_above(lock_service& locks, const grant& g,
                         const error& why) {
  auto floor = mark::from_store(why.seen());
  if (!floor)
    return floor.error();
  tell(locks, event_kind::regressed, g, &why);
  auto raised = locks.raise_floor(*floor);
  if (raised)
    tell(locks, event_kind::floor_raised, g, nullptr);
  return raised;
}

error still_regressed(const grant& g, const error& last) {
  return fail(errc::token_regressed,
              fmt::format("the token source '{}' stays behind the store's "
                          "mark although it was raised",
                          g.source().str()))
      .about(g.resource().str())
      .presented(g.token().value())
      .seen(last.seen());
}

}  // namespace

result<lease> acquire_behind_barrier(lock_service& locks, store& s,
                                     std::string_view resource,
                                     const acquire_options& a,
                                     const gateway_options& g) {
  const time_point start = locks.time()->now();
  acquire_options left = a;
  for (int raised = 0;; ++raised) {
    auto l = locks.acquire(resource, left);
    if (!l || g.barrier == barrier::at_first_write)
      return l;
    auto claimed = s.claim(l->grant());
    if (claimed)
      return l;
    const error& why = claimed.error();
    if (why.code() != errc::stale_token) {
      if (why.ends_lease())
        tell(locks, event_kind::refused, l->grant(), &why);
      return why;  // the lease releases itself
    }
    // Taken over while the barrier was on its way? Then it was not ours.
    if (auto held = l->check(); !held) {
      l->overtaken();
      return held.error();
    }
    if (raised >= g.regressions_tolerated) {
      return still_regressed(l->grant(), why);
    }
    if (auto ok = raise_above(locks, l->grant(), why); !ok) {
      return ok.error();
    }
    if (auto ok = l->release(); !ok)
      return ok.error();
    const duration spent = locks.time()->now() - start;
    left.wait_at_most = std::max(duration{0}, a.wait_at_most - spent);
  }
}

result<void> before_call(const lease& l) { return l.check(); }

void after_call(lease& l, lock_service& locks, const error& e,
                bool first_call) noexcept {
  if (!e.ends_lease() || e.code() == errc::lease_lost)
    return;
  const grant g = l.grant();
  tell(locks, event_kind::refused, g, &e);
  if (e.code() != errc::stale_token)
    return;
  // Without a barrier at grant, the first write is the one that meets the
  // mark of a source that forgot. The next grant must be above it.
  if (first_call && l.check())
    raise_above(locks, g, e).ignore();
  l.overtaken();
}

}  // namespace lastdoor::detail

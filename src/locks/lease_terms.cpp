#include "lease_terms.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "../fencing/text.hpp"

namespace lastdoor::detail {

namespace {

using std::chrono::milliseconds;

constexpr duration ttl_min = milliseconds{1};
constexpr std::size_t holder_bytes_max = 512;

error refuse(std::string why) {
  return fail(errc::invalid_argument, std::move(why));
}

result<void> check_ttl(duration ttl, duration ttl_max) {
  if (ttl >= ttl_min && ttl <= ttl_max)
    return {};
  return refuse(fmt::format("a TTL is {} to {} here, not {}", in_ms(ttl_min),
                            in_ms(ttl_max), in_ms(ttl)));
}

result<void> check_rest(const acquire_options& o, const lease_terms& t) {
  if (o.wait_at_most < duration::zero()) {
    return refuse(fmt::format("wait_at_most must not be negative, it is {}",
                              in_ms(o.wait_at_most)));
  }
  if (t.minimum_validity <= duration::zero() || t.minimum_validity > t.ttl) {
    return refuse(fmt::format(
        "minimum_validity must be above 0 and at most the TTL, it is {}",
        in_ms(t.minimum_validity)));
  }
  if (t.loss_margin <= duration::zero() || t.loss_margin >= t.ttl) {
    return refuse(
        fmt::format("loss_margin must be above 0 and below the TTL, it is {}",
                    in_ms(t.loss_margin)));
  }
  if (t.backoff.first <= duration::zero() || t.backoff.cap < t.backoff.first) {
    return refuse(fmt::format(
        "backoff needs 0 < first <= cap, it has first {} and cap {}",
        in_ms(t.backoff.first), in_ms(t.backoff.cap)));
  }
  if (o.holder.size() > holder_bytes_max || !valid_utf8(o.holder) ||
      o.holder.find('\0') != std::string::npos) {
    return refuse(
        fmt::format("holder must be UTF-8 without U+0000, at most {} bytes",
                    holder_bytes_max));
  }
  return {};
}

// No margin left in the time budget is a mistake that shows only when a
// server is slow; it is refused here, where the numbers are known.
result<void> check_budget(const lease_terms& t) {
  if (t.renew_every <= duration::zero()) {
    return refuse(fmt::format("renew_every must be above 0, it is {}",
                              in_ms(t.renew_every)));
  }
  if (sum(sum(t.renew_every, t.call_timeout), t.loss_margin) < t.ttl)
    return {};
  return refuse(fmt::format(
      "renew_every ({}), one call ({}) and loss_margin ({}) must together be "
      "below the TTL ({})",
      in_ms(t.renew_every), in_ms(t.call_timeout), in_ms(t.loss_margin),
      in_ms(t.ttl)));
}

}  // namespace

std::string in_ms(duration d) {
  return fmt::format("{} ms",
                     std::chrono::duration<double, std::milli>{d}.count());
}

result<lease_terms> checked_terms(const acquire_options& o,
                                  const lock_backend& backend) {
  if (auto good = check_ttl(o.ttl, backend.max_ttl()); !good)
    return good.error();
  lease_terms t{};
  t.ttl = o.ttl;
  t.loss_margin = o.loss_margin.value_or(o.ttl / 10);
  t.minimum_validity = o.minimum_validity.value_or(o.ttl / 2);
  t.backoff = o.backoff;
  t.renew = o.renew;
  if (auto good = check_rest(o, t); !good)
    return good.error();
  // A grant that would be lost the moment it is returned is no grant.
  t.minimum_validity =
      std::max(t.minimum_validity, t.loss_margin + duration{1});
  const duration usable = t.ttl - t.loss_margin;
  t.call_timeout = backend.call_timeout();
  if (o.renew && o.renew_every) {
    t.renew_every = *o.renew_every;
    if (auto good = check_budget(t); !good)
      return good.error();
  } else {
    t.renew_every = std::max(std::min(t.ttl / 3, usable / 2), duration{1});
    // Half of what is left, so that a renewal that took all its time can be
    // tried once more.
    t.call_timeout = std::min(t.call_timeout, (usable - t.renew_every) / 2);
  }
  return t;
}

}  // namespace lastdoor::detail

// lease_terms.hpp: acquire_options, checked and with every default filled in.
//
// Invariants
//   - 1 ms <= ttl <= the back end's limit.
//   - 0 < minimum_validity <= ttl, and above the loss margin.
//   - renew_every + call_timeout + loss_margin < ttl, if it renews: one call
//     that takes its whole time still ends before the loss is signalled.
#pragma once

#include <lastdoor/lock_service.hpp>
#include <string>

#include "time_math.hpp"

namespace lastdoor::detail {

struct lease_terms {
  duration ttl;
  duration minimum_validity;
  duration renew_every;
  duration loss_margin;
  duration call_timeout;  // of one renewal
  backoff_options backoff;
  bool renew;
};

/// For messages: in ms, with as many digits as it takes, because 999 us must
/// not read as 1 ms.
[[nodiscard]] std::string in_ms(duration d);

/// `invalid_argument` says which option is wrong and what it may be.
[[nodiscard]] result<lease_terms> checked_terms(const acquire_options& options,
                                                const lock_backend& backend);

}  // namespace lastdoor::detail

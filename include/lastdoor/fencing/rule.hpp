// fencing/rule.hpp: may this write pass? The whole decision, pure.
//
// Invariants
//   - A mark never falls.
//   - Every input has exactly one verdict. Order decides, never equality:
//     a check for "different from mine" refuses newer holders or admits older.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <lastdoor/token.hpp>

namespace lastdoor {

enum class verdict : std::uint8_t {
  admit_newer,  // above the mark: pass, and raise the mark in the same step
  admit_same,   // equals the mark: the same tenure, the mark stays
  repeated,     // equals the mark and the rule allows one write: it was ours
  stale,        // below the mark: nothing may change
};

/// How often one grant may write one row.
enum class write_rule : std::uint8_t {
  /// `fence_token < :token`. Default without the ledger: a repeat under the
  /// same token is recognised as already applied, so a retry is safe.
  once_per_grant,
  /// `fence_token <= :token`. Default with the ledger, whose claim proves
  /// that an equal token is ours.
  many_per_grant,
};

[[nodiscard]] constexpr verdict judge(fencing_token presented, mark seen,
                                      write_rule rule) noexcept {
  if (presented.value() > seen.value())
    return verdict::admit_newer;
  if (presented.value() < seen.value())
    return verdict::stale;
  return rule == write_rule::once_per_grant ? verdict::repeated
                                            : verdict::admit_same;
}

}  // namespace lastdoor

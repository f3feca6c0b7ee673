// fencing/outcome.hpp: how a write ended.
//
// G6: exactly one of applied (a receipt) or, as an error: stale_token,
// precondition_failed, missing, in_doubt. Any other error code says that the
// write did not take place.
//
// Thread safety: values.
#pragma once

#include <cstdint>
#include <lastdoor/fencing/value.hpp>
#include <vector>

namespace lastdoor {

struct [[nodiscard]] receipt {
  /// Rows written; 0 when `already_applied` and the store cannot tell.
  std::int64_t rows{0};
  /// This very write had taken effect before; nothing was written now.
  bool already_applied{false};
  /// What `returning` asked for. Empty when already applied.
  std::vector<row> returned;
};

}  // namespace lastdoor

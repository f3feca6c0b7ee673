// stores/store.hpp: what every fenced store can do, whatever its driver.
//
// Invariants (testing/store_contract.hpp checks them)
//   - G3: the mark of a resource never falls.
//   - G4: once a mark >= t is committed, a write presented with a token below
//     t changes nothing.
//   - The check and the write are one atomic step.
//   - An equal token of another owner is refused; so is a token of another
//     source, until an explicit hand-over.
//   - G6: every write ends in one way that can be told; in doubt is resolved
//     by asking the store.
//   - A grant whose validity is over is refused locally, before anything is
//     sent (`lease_lost`).
//
// The part that differs from driver to driver, `transaction`, is not here:
// it hands out the driver's own transaction object. The concept `fenced_store`
// below says what the gateway needs of it.
//
// Thread safety: every member may be called from any thread.
#pragma once

#include <cstdint>
#include <lastdoor/fencing/outcome.hpp>
#include <lastdoor/fencing/statement.hpp>
#include <lastdoor/grant.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lastdoor {

struct write_options {
  /// Makes a retry of this write safe even if its first answer was lost: the
  /// store remembers the number of the last write of the grant, in the same
  /// transaction. A write with that number or a lower one is recognised as
  /// already applied. Number the writes of one grant 1, 2, 3, ...; a retry
  /// keeps its number. Costs one more update of the ledger row.
  std::optional<std::int64_t> sequence;
};

/// One row of the ledger.
struct mark_status {
  std::string resource;
  mark token;
  std::string source;
  std::int64_t last_sequence{0};
};

class store {
 public:
  virtual ~store() = default;

  /// Raises the mark to the grant's token and does nothing else: the barrier
  /// of G5. `stale_token` (with the mark seen), `wrong_source`, `lease_lost`,
  /// `unavailable`, `schema_mismatch`, ....
  [[nodiscard]] virtual result<void> claim(const grant& g) = 0;

  /// One fenced statement. See fencing/outcome.hpp.
  [[nodiscard]] virtual result<receipt> write(const grant& g,
                                              const statement& s,
                                              const write_options& o = {}) = 0;

  [[nodiscard]] virtual result<mark> read_mark(
      const resource_name& resource) = 0;
  /// The ledger in order of the names, from after `after`, `limit` at most.
  [[nodiscard]] virtual result<std::vector<mark_status>> list_marks(
      std::string_view after, std::size_t limit) = 0;
  /// The highest mark of all resources: what a new source must start above.
  [[nodiscard]] virtual result<mark> highest_mark() = 0;

  /// From now on, what was bound to `from` is bound to `to`, and `from` is
  /// refused everywhere. Raise the new source's floor above `highest_mark()`
  /// first; the tool's `handover` does both. Answers the number of marks.
  [[nodiscard]] virtual result<std::int64_t> hand_over(
      const source_name& from, const source_name& to) = 0;
};

}  // namespace lastdoor

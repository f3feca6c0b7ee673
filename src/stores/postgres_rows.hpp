// postgres_rows.hpp: what the rows that a statement names say of it.
//
// Thread safety: free functions.
#pragma once

#include <cstdint>
#include <lastdoor/errors.hpp>
#include <lastdoor/fencing/outcome.hpp>
#include <lastdoor/fencing/rule.hpp>
#include <lastdoor/fencing/statement.hpp>
#include <lastdoor/grant.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/postgres.hpp"
#include "stores/postgres_store_impl.hpp"

namespace lastdoor::postgres {

// The verdict on one row that is there.
struct row_verdict {
  enum class kind : std::uint8_t { passes, repeated, stale, refused, unfit };
  kind what;
  std::int64_t fence{0};
  std::string column;  // of `refused`: whose requirement does not hold
};

// The row's fence stands in column `at`, the requirements after it.
[[nodiscard]] row_verdict judge_row(const postgres_driver::answer& rows,
                                    int row, int at, const statement& s,
                                    const grant& g, write_rule rule);

// What a statement about one row comes to, given a verdict other than
// `passes`. `row` names it: "the row sku = 's1'".
[[nodiscard]] result<receipt> outcome_of(const row_verdict& v,
                                         std::string_view row,
                                         std::string_view fence_column,
                                         const statement& s, const grant& g);

[[nodiscard]] error no_such_row(const statement& s, const grant& g);
[[nodiscard]] error is_there_already(const statement& s, const grant& g);
[[nodiscard]] error skipped(const statement& s, const grant& g);

// A row by the key that the statement names.
[[nodiscard]] std::string key_text(const statement& s);
// A row by its identity, whose columns start at `at`.
[[nodiscard]] std::string identity_text(
    const postgres_driver::answer& rows, int row, int at,
    const std::vector<std::string>& columns);

}  // namespace lastdoor::postgres

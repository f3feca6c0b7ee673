// postgres_ledger.hpp: the claim as the store's SQL, and its verdict as an
// error. What a claim does is in migrations/postgres/0001_ledger.up.sql.
//
// Thread safety: free functions.
#pragma once

#include <cstdint>
#include <lastdoor/errors.hpp>
#include <lastdoor/grant.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lastdoor::postgres {

// What a claim came to. By the last two, the fate of its transaction can be
// asked on another connection.
struct claimed {
  bool raised{false};
  bool applied{false};  // the numbered write took effect before
  std::string xid;
  std::string timeline;
};

// The columns of lastdoor.claim, as they came.
struct claim_row {
  std::string_view verdict;
  std::int64_t mark{0};
  std::string_view mark_source;
  std::string_view xid;
  std::string_view timeline;
};
[[nodiscard]] result<claimed> judge_claim(const claim_row& row, const grant& g);

// What a look at the ledger's row says about a grant that is not held by it.
// Nothing: the mark is the grant's own, or below, or there is none.
struct ledger_row {
  std::int64_t mark;
  std::string_view owner;
  std::string_view source;
};
[[nodiscard]] std::optional<error> refused_by(const ledger_row& row,
                                              const grant& g);

struct claim_options {
  std::optional<std::int64_t> sequence;
  // Nothing: the validity has no end worth a limit.
  std::optional<std::int64_t> bound_ms;
};
// SELECT ... FROM lastdoor.claim(...), with the values as literals, so that it
// can travel in one message with BEGIN.
[[nodiscard]] std::string claim_sql(const grant& g, const claim_options& o);

// What is left of the validity, in milliseconds, 1 at least.
[[nodiscard]] std::optional<std::int64_t> bound_of(const grant& g,
                                                   time_point now);

// An SQL literal, whatever standard_conforming_strings says.
[[nodiscard]] std::string literal(std::string_view text);

// An error with the grant's resource and token.
[[nodiscard]] error about(error e, const grant& g);

// A guard's refusal names the mark or fence at the end of its first line; a
// number there is the mark that was seen.
[[nodiscard]] error with_mark_of_guard(error e);

}  // namespace lastdoor::postgres

// sqlite_ledger.hpp: the claim, inside a transaction that somebody else runs.
//
// Invariants
//   - A claim reads the resource's row and either finds the grant's own
//     token, owner and source, or raises the row to them, or refuses.
//   - A refused claim has changed nothing.
//   - Tokens of different sources are never compared.
//
// Thread safety: as the connection.
#pragma once

#include <cstdint>
#include <lastdoor/errors.hpp>
#include <lastdoor/grant.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "drivers/sqlite.hpp"

namespace lastdoor::sqlite {

struct claimed {
  // False when the mark was the grant's already; nothing was written then.
  bool raised{false};
  std::int64_t last_sequence{0};
};

class ledger {
 public:
  // Refers to the connection; it must outlive the ledger.
  explicit ledger(sqlite_driver::connection& db) noexcept : db_{&db} {}

  // `stale_token`, `wrong_source`, or what SQLite said. Requires: inside a
  // transaction; with BEGIN IMMEDIATE it cannot fail half way.
  [[nodiscard]] result<claimed> claim(const grant& g);

  // That the claim still stands in this transaction: `stale_token` or
  // `unavailable` when it does not.
  [[nodiscard]] result<void> confirm(const grant& g);

  // Whether any table of the file has a guard. Costs a query only when the
  // schema has changed since. Requires: a claim in this transaction.
  [[nodiscard]] result<bool> guarded();

  // Shows the token to the guards until `withdraw`.
  [[nodiscard]] result<void> present(const grant& g);
  [[nodiscard]] result<void> withdraw();

  // `stale_token` unless the mark is still this grant's.
  [[nodiscard]] result<void> remember_sequence(const grant& g,
                                               std::int64_t number);

  // The mark as it is; `damaged` when it is no token.
  [[nodiscard]] result<mark> mark_of(std::string_view resource);

 private:
  using prepared = sqlite_driver::statement;
  [[nodiscard]] result<prepared*> ready(prepared& s, std::string_view sql);
  [[nodiscard]] result<void> refuse_retired(const grant& g);
  [[nodiscard]] result<claimed> raise(const grant& g, bool present);

  sqlite_driver::connection* db_;
  prepared read_;
  prepared present_;
  prepared withdraw_;
  prepared sequence_;
  // What `guarded` found, and how often `read_` had been prepared anew then.
  bool guarded_{false};
  int guarded_at_{-1};
};

// A token as the file has it; `damaged` when it is none.
[[nodiscard]] result<mark> stored_mark(const sqlite_driver::statement& row,
                                       int column);

// An error with the grant's resource and token.
[[nodiscard]] error about(error e, const grant& g);

// A guard's refusal carries its code in its text: "lastdoor: <code>: ...". The
// error it means; nothing when `db` did not fail in a trigger of lastdoor's.
[[nodiscard]] std::optional<error> guard_refusal(sqlite3* db);

}  // namespace lastdoor::sqlite

// locks/postgres_transaction.hpp: locks that live in the caller's own
// libpqxx transaction, for those whose data and lock are in one database.
//
// Such a lock needs no lease, no renewal and no token: it ends with the
// transaction, and what it protects commits or rolls back with it. Writes to
// anything else (a file, a queue, another database) are not protected: take a
// lease and its token for these.
//
// Invariants
//   - Nothing but the lock is changed: no setting, no prepared statement.
//   - Names are hashed to 64 bits inside the server, the same on every
//     machine, apart from anybody else's advisory locks. Two names that share
//     a hash wait for each other; nothing worse.
//
// Thread safety: as the transaction that is given.
// Errors: by `result`. As always in Postgres, after an error (`busy` is none)
// the transaction can only be rolled back.
//
// Example:
//
//   pqxx::work tx{connection};
//   lastdoor::postgres::lock_in_transaction(tx, "stock/sku-7").value();
//   tx.exec("UPDATE stock SET qty = qty - 1 WHERE sku = 'sku-7'");
//   tx.commit();
#pragma once

#include <cstdint>
#include <lastdoor/token.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace pqxx {
class transaction_base;
}

namespace lastdoor::postgres {

enum class if_taken : std::uint8_t {
  wait,    // until it is free; `lock_timeout` of the session bounds it
  refuse,  // answer `busy` at once
};

/// Locks `resource` until the transaction ends. Re-entrant within it.
/// `busy`; `invalid_argument` for a name that is none; `unavailable` for a
/// deadlock or a time-out, after which the transaction may be tried again.
[[nodiscard]] result<void> lock_in_transaction(pqxx::transaction_base& tx,
                                               std::string_view resource,
                                               if_taken what = if_taken::wait);

/// A table whose rows are jobs.
struct job_queue {
  std::string table;
  std::string schema{};   // empty: found along the session's search_path
  std::string key{"id"};  // a column that names the row
  /// SQL, written by the developer, never by a user: which rows may be taken
  /// ("done_at IS NULL") and in what order ("created_at"). Empty: all, any.
  std::string ready{};
  std::string order_by{};
};

struct claimed_job {
  std::string key;  // as text
  fencing_token token;
};

enum class if_row_locked : std::uint8_t {
  skip,    // take the next one
  refuse,  // answer `busy`
  wait,
};

/// Takes one job: locks its row until the transaction ends, and draws a token
/// that is above those of all who had this job before. Nothing: no job ready.
///
/// The token is safe to show to others, and to store in other systems, once
/// the transaction has committed; before, a crash may undo it. So for work
/// that takes long, note the token in the row, commit, do the work, and
/// finish with a write that names the token.
///
/// Needs the migrations. `token_regressed` when the server is not the one
/// that the counter belonged to: opening a lock service puts that right.
[[nodiscard]] result<std::optional<claimed_job>> claim_job(
    pqxx::transaction_base& tx, const job_queue& queue,
    if_row_locked what = if_row_locked::skip);

}  // namespace lastdoor::postgres

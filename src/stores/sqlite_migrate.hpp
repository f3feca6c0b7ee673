// sqlite_migrate.hpp: lastdoor's own tables in an SQLite file, for the code
// that has a connection already. The public side is migrate.hpp.
//
// Invariants
//   - A migration and the row that records it are one transaction.
//   - What is applied is read again inside that transaction, so that of many
//     migrators at once each step is done by one.
//   - Nothing is applied to a file that a newer release has changed, or in
//     which a step was applied with another text.
//
// Thread safety: as its connection: one thread at a time.
// Errors: `schema_mismatch` names the version; else what SQLite said.
#pragma once

#include <functional>
#include <lastdoor/errors.hpp>
#include <string>
#include <vector>

#include "drivers/sqlite.hpp"
#include "stores/embedded_migrations.hpp"

namespace lastdoor::sqlite {

// The versions that the schema of this release consists of.
inline constexpr int ledger_version = 1;
inline constexpr int leases_version = 2;

// Called after each statement that a migrator has executed, BEGIN and COMMIT
// included. For tests that kill the process there.
using after_statement = std::function<void()>;

// Applies what is missing, in order. Answers the versions applied now. A file
// that is up to date is read only.
[[nodiscard]] result<std::vector<int>> apply_missing(
    sqlite_driver::connection& db, const after_statement& after = {});

// The same for those who only need it done.
[[nodiscard]] result<void> apply_all(sqlite_driver::connection& db);

// See migrate_down. All steps are one transaction: a refusal or a crash
// leaves everything as it was.
[[nodiscard]] result<std::vector<int>> take_back(
    sqlite_driver::connection& db, int to_version, bool discard_marks,
    const after_statement& after = {});

// `schema_mismatch` unless all versions up to `required` are there, with the
// text of this release, and none that this release does not know.
[[nodiscard]] result<void> check_schema(sqlite_driver::connection& db,
                                        int required);

// How lastdoor's own tables, indexes and triggers differ from what
// `apply_all` makes in an empty database. Triggers on users' tables, which
// are named lastdoor_guard_*, are not looked at.
[[nodiscard]] result<std::vector<std::string>> own_differences(
    sqlite_driver::connection& db);

}  // namespace lastdoor::sqlite

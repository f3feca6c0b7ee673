// postgres_migrate.hpp: lastdoor's own schema in a Postgres database, for the
// code that has a connection already. The public side is migrate.hpp.
//
// Invariants
//   - A migration and the row that records it are one transaction.
//   - One migrator works at a time. The others ask again and again, outside
//     any transaction, so that nothing they hold can stand in the way of an
//     index that is built concurrently; and they give up after a while.
//   - Nothing is applied to a database that a newer release has changed, or
//     in which a step was applied with another text.
//
// Thread safety: as its connection: one thread at a time.
// Errors: `schema_mismatch` names the version; `misconfigured` behind a
// pooler, where a session's lock protects nothing; else what Postgres said.
#pragma once

#include <functional>
#include <lastdoor/errors.hpp>
#include <string>
#include <vector>

#include "drivers/postgres.hpp"

namespace lastdoor::postgres {

// The versions that the schema of this release consists of.
inline constexpr int ledger_version = 1;
inline constexpr int leases_version = 2;

// Called after each request that a migrator has made, BEGIN and COMMIT
// included. For tests that kill the process there.
using after_request = std::function<void()>;

// How long a migrator waits for another one to finish.
inline constexpr duration migrator_patience = std::chrono::seconds{60};

// Applies what is missing, in order. Answers the versions applied now. A
// database that is up to date is read only.
[[nodiscard]] result<std::vector<int>> apply_missing(
    postgres_driver::connection& db, const after_request& after = {},
    duration patience = migrator_patience);

// See migrate_down. All steps are one transaction.
[[nodiscard]] result<std::vector<int>> take_back(
    postgres_driver::connection& db, int to_version, bool discard_marks,
    const after_request& after = {});

// `schema_mismatch` unless all versions up to `required` are there, with the
// text of this release, and none that this release does not know.
[[nodiscard]] result<void> check_schema(postgres_driver::connection& db,
                                        int required, time_point deadline);

// How the objects in schema lastdoor differ from what this release makes.
// Makes them once more beside the present ones, in a transaction that is
// rolled back; needs the rights to do so. Guards on users' tables are not
// looked at, nor who owns what and who was granted what.
[[nodiscard]] result<std::vector<std::string>> own_differences(
    postgres_driver::connection& db);

}  // namespace lastdoor::postgres

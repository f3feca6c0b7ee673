// sqlite_guard.hpp: the triggers that put the fence into the database.
//
// A guard makes the table itself refuse (or record) what comes without a
// token, or with one that is too old, whichever program sends it. See
// lastdoor_presented in migrations/sqlite/0001_ledger.up.sql.
//
// Invariants
//   - Built-in SQL only: a stock shell can write, and an untrusted schema
//     does no harm.
//   - An insert looks for the rows that it would replace, by every key of the
//     table: REPLACE deletes without firing a delete trigger.
//   - The fence of a row is the token presented; nothing else raises it, and
//     nothing lowers it.
//   - In audit mode nothing is refused. What is recorded of a NULL that stands
//     for a default the guard cannot name is all there is: the fence of a row
//     replaced that way is not carried over.
//
// Thread safety: free functions; as the connection.
#pragma once

#include <lastdoor/migrate.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/sqlite.hpp"
#include "stores/sqlite_table.hpp"

namespace lastdoor::sqlite {

struct guard_trigger {
  std::string name;
  std::string sql;
};

// The triggers of a guard; none for guard_mode::none.
[[nodiscard]] std::vector<guard_trigger> guard_triggers(const table_info& t,
                                                        std::string_view fence,
                                                        guard_mode mode);

// The plan for a table as it is; see migrate.hpp.
[[nodiscard]] result<fence_plan> make_plan(sqlite_driver::connection& db,
                                           const fence_request& request);

// One line for each guarded table whose triggers are not what this release
// would make for the table as it is now, say because a unique index came
// later.
[[nodiscard]] result<std::vector<std::string>> guard_differences(
    sqlite_driver::connection& db);

}  // namespace lastdoor::sqlite

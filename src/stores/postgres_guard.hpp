// postgres_guard.hpp: what it takes to fence a table, worked out and applied.
//
// Invariants
//   - The plan is made from the catalogue as it is. Applying a plan, or a
//     part of it, and planning again leaves exactly what is missing, so a run
//     that died half way is completed by the next one.
//   - No step waits in the lock queue for longer than `lock_timeout`: readers
//     and writers of a busy table never pile up behind a migration.
//   - Nothing rewrites the table: the new column has a constant default, and
//     its CHECK is validated by a scan that blocks neither reads nor writes.
//
// Thread safety: as the connection.
#pragma once

#include <cstdint>
#include <functional>
#include <lastdoor/migrate.hpp>
#include <lastdoor/token.hpp>
#include <string>
#include <vector>

#include "drivers/postgres.hpp"
#include "stores/postgres_table.hpp"

namespace lastdoor::postgres {

inline constexpr std::string_view guard_trigger = "zzz_lastdoor_guard";
inline constexpr std::string_view truncate_trigger = "zzz_lastdoor_truncate";
inline constexpr std::string_view range_constraint = "lastdoor_fence_range";

// Statements that belong into one transaction.
struct guard_step {
  std::vector<std::string> statements;
};

struct guard_plan {
  relation target;
  std::vector<guard_step> steps;
  std::vector<std::string> notes;
};

[[nodiscard]] result<guard_plan> plan_guard(postgres_driver::connection& db,
                                            const fence_request& request,
                                            time_point deadline);

struct guard_limits {
  // How long a step may hold up others while it waits for its lock.
  duration lock_timeout{std::chrono::milliseconds{100}};
  // How long it may wait for a lock that holds up nobody who reads or writes:
  // longer than deadlock_timeout, after which Postgres ends an autovacuum that
  // is in the way of others.
  duration quiet_timeout{std::chrono::seconds{5}};
  // Pauses between tries are random, up to this.
  duration longest_pause{std::chrono::seconds{2}};
  duration give_up_after{std::chrono::minutes{2}};
  // For tests: called when a step has been committed.
  std::function<void()> after_step{};
};

// Applies the plan step by step and answers all that was planned.
// `unavailable` names who held the table.
[[nodiscard]] result<guard_plan> apply_guard(postgres_driver::connection& db,
                                             const fence_request& request,
                                             const guard_limits& limits);

// What is wrong with the guards that are installed, one line each: switched
// off, not ALWAYS, missing on a partition, over a column that is gone.
[[nodiscard]] result<std::vector<std::string>> inspect_guards(
    postgres_driver::connection& db, time_point deadline);

}  // namespace lastdoor::postgres

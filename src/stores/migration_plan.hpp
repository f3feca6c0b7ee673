// migration_plan.hpp: what the rows of applied migrations mean. Pure: the same
// for every database.
//
// Thread safety: free functions of their arguments.
#pragma once

#include <lastdoor/migrate.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stores/embedded_migrations.hpp"

namespace lastdoor::detail {

struct applied_migration {
  std::int64_t version;
  std::string name;
  std::string checksum;
};

// How many migrations are applied. They are 1..n for some n, each with the
// text of this release; anything else is another release's database, and not
// ours to change: `schema_mismatch`. `rows` are in order of version.
[[nodiscard]] result<int> applied_count(
    std::span<const applied_migration> rows,
    std::span<const embedded_migration> known);

// Every migration known here or applied there.
[[nodiscard]] std::vector<migration_status> status_of(
    std::span<const applied_migration> rows,
    std::span<const embedded_migration> known);

// `invalid_argument` unless there is such a version to go back to.
[[nodiscard]] result<void> check_target(
    int to_version, std::span<const embedded_migration> known);

// Why a request that names no guard does not touch a table that has one.
[[nodiscard]] error guard_unsaid(std::string_view table);

}  // namespace lastdoor::detail

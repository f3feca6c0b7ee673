#include "stores/migration_plan.hpp"

#include <fmt/format.h>

#include <utility>

namespace lastdoor::detail {

result<int> applied_count(std::span<const applied_migration> rows,
                          std::span<const embedded_migration> known) {
  std::int64_t next = 1;
  for (const auto& row : rows) {
    if (row.version < 1 || std::cmp_greater(row.version, known.size())) {
      return fail(errc::schema_mismatch,
                  fmt::format("migration {} '{}' is applied, which this "
                              "release does not know; it knows up to {}",
                              row.version, row.name, known.size()));
    }
    if (row.version != next) {
      return fail(errc::schema_mismatch,
                  fmt::format("migration {} is applied but {} is not",
                              row.version, next));
    }
    if (row.checksum != known[static_cast<std::size_t>(next - 1)].checksum) {
      return fail(errc::schema_mismatch,
                  fmt::format("migration {} '{}' was applied with another "
                              "text than this release has",
                              row.version, row.name));
    }
    ++next;
  }
  return static_cast<int>(rows.size());
}

std::vector<migration_status> status_of(
    std::span<const applied_migration> rows,
    std::span<const embedded_migration> known) {
  std::vector<migration_status> all;
  for (const auto& m : known) {
    all.push_back({m.version, std::string{m.name}, false, true});
  }
  for (const auto& row : rows) {
    if (row.version >= 1 && std::cmp_less_equal(row.version, known.size())) {
      const auto at = static_cast<std::size_t>(row.version - 1);
      all[at].applied = true;
      all[at].checksum_matches = row.checksum == known[at].checksum;
    } else {
      // A newer release was here. Its text is not ours, whatever it is.
      all.push_back({static_cast<int>(row.version), row.name, true, false});
    }
  }
  return all;
}

result<void> check_target(int to_version,
                          std::span<const embedded_migration> known) {
  if (to_version >= 0 && std::cmp_less_equal(to_version, known.size())) {
    return {};
  }
  return fail(errc::invalid_argument,
              fmt::format("there is no version {} to go back to; this release "
                          "knows 0 to {}",
                          to_version, known.size()));
}

error guard_unsaid(std::string_view table) {
  return fail(errc::invalid_argument,
              fmt::format("{} has a guard already, so say which it shall have: "
                          "strict, audit or none",
                          table));
}

}  // namespace lastdoor::detail

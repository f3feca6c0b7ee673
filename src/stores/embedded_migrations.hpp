// embedded_migrations.hpp: the shape of a migration inside the program text.
//
// The SQL lives once, in migrations/<database>/; the build turns the files
// into an array of these (cmake/embed_sql.cmake). All views point at string
// literals and live as long as the program.
#pragma once

#include <string_view>

namespace lastdoor::detail {

struct embedded_migration {
  int version;                // 1, 2, 3, ... without gaps
  std::string_view name;      // "fencing" for 0001_fencing.up.sql
  std::string_view up;        // text of the up file, byte for byte
  std::string_view down;      // text of the down file, byte for byte
  std::string_view checksum;  // SHA-256 of the up file, lower-case hex
};

}  // namespace lastdoor::detail

// sqlite_schema_text.hpp: the text of lastdoor's objects, made comparable.
//
// Thread safety: as the connection that is read.
#pragma once

#include <lastdoor/errors.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/sqlite.hpp"

namespace lastdoor::sqlite {

// "table lastdoor_marks" and what made it, as `plain_sql` gives it.
using schema_text = std::map<std::string, std::string>;

// Everything named lastdoor_* that is lastdoor's own: no guard triggers, and
// no index that SQLite made for itself.
[[nodiscard]] result<schema_text> read_own_schema(
    sqlite_driver::connection& db);

// The statement without comments and with one blank where any were, except
// inside quotes: what is left is what SQLite understood.
[[nodiscard]] std::string plain_sql(std::string_view sql);

// One line for each object that is missing, extra or of another text.
[[nodiscard]] std::vector<std::string> differences(const schema_text& want,
                                                   const schema_text& have);

}  // namespace lastdoor::sqlite

// postgres_schema_text.hpp: the objects of a schema, made comparable.
//
// Thread safety: as the connection that is read.
#pragma once

#include <lastdoor/errors.hpp>
#include <map>
#include <string>
#include <vector>

#include "drivers/postgres.hpp"

namespace lastdoor::postgres {

// "column leases.owner" and what it is, as Postgres itself describes it.
using schema_text = std::map<std::string, std::string>;

// Everything in `schema`; where a text names the schema, it says "lastdoor".
[[nodiscard]] result<schema_text> read_schema(postgres_driver::connection& db,
                                              std::string_view schema,
                                              time_point deadline);

// One line for each object that is missing, extra or different.
[[nodiscard]] std::vector<std::string> differences(const schema_text& want,
                                                   const schema_text& have);

}  // namespace lastdoor::postgres

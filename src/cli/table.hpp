// table.hpp: columns of text for people. Bytes that would upset a terminal
// are escaped.
#pragma once

#include <string>
#include <vector>

namespace lastdoor::cli {

// The first row is the heading. Columns are as wide as they need to be and
// two blanks apart. `right` lists the columns that are set to the right.
[[nodiscard]] std::string table(
    const std::vector<std::vector<std::string>>& rows,
    const std::vector<std::size_t>& right = {});

}  // namespace lastdoor::cli

#include "cli/table.hpp"

#include <algorithm>

#include "fencing/text.hpp"

namespace lastdoor::cli {

namespace {

// Characters, not bytes: every byte that does not continue one.
std::size_t width_of(const std::string& cell) {
  return static_cast<std::size_t>(std::count_if(
      cell.begin(), cell.end(),
      [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string table(const std::vector<std::vector<std::string>>& rows,
                  const std::vector<std::size_t>& right) {
  std::vector<std::vector<std::string>> cells;
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    auto& line = cells.emplace_back();
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) {
      line.push_back(printable(row[i]));
      widths[i] = std::max(widths[i], width_of(line.back()));
    }
  }
  std::string out;
  for (const auto& line : cells) {
    std::string text;
    for (std::size_t i = 0; i < line.size(); ++i) {
      const std::string pad(widths[i] - width_of(line[i]), ' ');
      const bool to_the_right =
          std::find(right.begin(), right.end(), i) != right.end();
      text += i == 0 ? "" : "  ";
      text += to_the_right ? pad + line[i] : line[i] + pad;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  }
  return out;
}

}  // namespace lastdoor::cli

#include "sqlite_schema_text.hpp"

#include <fmt/format.h>

namespace lastdoor::sqlite {

namespace {

constexpr std::string_view blanks = " \t\r\n\f";

// Where the token that starts at `at` ends: a quoted text, a comment, a run
// of blanks, or one other character.
std::size_t end_of_token(std::string_view sql, std::size_t at) {
  const auto or_end = [&](std::size_t found, std::size_t length) {
    return found == std::string_view::npos ? sql.size() : found + length;
  };
  const char c = sql[at];
  if (sql.substr(at, 2) == "--") {
    return or_end(sql.find('\n', at), 1);
  }
  if (sql.substr(at, 2) == "/*") {
    return or_end(sql.find("*/", at + 2), 2);
  }
  if (c == '\'' || c == '"' || c == '`') {
    // A doubled quote ends one text and begins the next: the same thing here.
    return or_end(sql.find(c, at + 1), 1);
  }
  if (c == '[') {
    return or_end(sql.find(']', at), 1);
  }
  if (blanks.find(c) != std::string_view::npos) {
    return or_end(sql.find_first_not_of(blanks, at), 0);
  }
  return at + 1;
}

}  // namespace

std::string plain_sql(std::string_view sql) {
  std::string out;
  bool gap = false;
  for (std::size_t at = 0; at < sql.size();) {
    const auto end = end_of_token(sql, at);
    const auto token = sql.substr(at, end - at);
    at = end;
    if (token.starts_with("--") || token.starts_with("/*") ||
        blanks.find(token.front()) != std::string_view::npos) {
      gap = true;
      continue;
    }
    if (gap && !out.empty()) {
      out += ' ';
    }
    gap = false;
    out += token;
  }
  return out;
}

result<schema_text> read_own_schema(sqlite_driver::connection& db) {
  constexpr std::string_view doing = "reading the schema";
  schema_text found;
  auto all = db.prepare(
      "SELECT type || ' ' || name, sql FROM main.sqlite_schema "
      "WHERE name GLOB 'lastdoor_*' AND name NOT GLOB 'lastdoor_guard_*'",
      doing);
  if (!all) {
    return all.error();
  }
  for (;;) {
    auto more = all->step(doing);
    if (!more) {
      return more.error();
    }
    if (!*more) {
      return found;
    }
    found.emplace(all->text(0), plain_sql(all->text(1)));
  }
}

std::vector<std::string> differences(const schema_text& want,
                                     const schema_text& have) {
  std::vector<std::string> lines;
  for (const auto& [object, text] : want) {
    const auto it = have.find(object);
    if (it == have.end()) {
      lines.push_back(fmt::format("{} is missing", object));
    } else if (it->second != text) {
      lines.push_back(fmt::format("{} is '{}' but should be '{}'", object,
                                  it->second, text));
    }
  }
  for (const auto& [object, text] : have) {
    if (!want.contains(object)) {
      lines.push_back(fmt::format("{} is not of this release", object));
    }
  }
  return lines;
}

}  // namespace lastdoor::sqlite

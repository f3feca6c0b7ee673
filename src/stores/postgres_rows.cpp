#include "postgres_rows.hpp"

#include <fmt/format.h>

#include <charconv>

namespace lastdoor::postgres {

namespace {

using fencing::slot;
using postgres_driver::answer;

// Object ids of Postgres's own types never change.
enum type_oid : unsigned {
  bool_oid = 16,
  bytea_oid = 17,
  int8_oid = 20,
  int2_oid = 21,
  int4_oid = 23,
  float4_oid = 700,
  float8_oid = 701,
};

value real_value(std::string_view text) {
  double d = 0;
  const auto [end, ec] =
      std::from_chars(text.data(), text.data() + text.size(), d);
  if (ec != std::errc{} || end != text.data() + text.size()) {
    return value{text};
  }
  return d;
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 0;
}

// bytea_output is hex on our sessions unless a role says otherwise; what is
// not hex is given back as the text it came as.
value bytes_value(std::string_view text) {
  if (!text.starts_with("\\x")) {
    return value{text};
  }
  blob bytes;
  for (std::size_t i = 2; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(hex_digit(text[i]) * 16 +
                                           hex_digit(text[i + 1])));
  }
  return bytes;
}

error unfit(std::string_view column, const statement& s) {
  return fail(errc::schema_mismatch,
              fmt::format("the column '{}' of '{}' holds something that is no "
                          "token; it must be bigint NOT NULL",
                          column, s.table()));
}

}  // namespace

postgres_driver::arguments bind(const text_and_slots& text, const grant& g,
                                const statement& s) {
  postgres_driver::arguments with{text.slots.size()};
  for (const auto& place : text.slots) {
    switch (place.from) {
      case slot::origin::token:
        with.add(g.token().value());
        break;
      case slot::origin::resource:
        with.add(std::string_view{g.resource().str()});
        break;
      case slot::origin::owner:
        with.add(std::string_view{g.owner().str()});
        break;
      case slot::origin::source:
        with.add(std::string_view{g.source().str()});
        break;
      case slot::origin::negated: {
        const value& v = fencing::value_of(place, s);
        if (const auto* d = v.real()) {
          with.add(value{-*d});
        } else {
          with.add(-*v.integer());
        }
        break;
      }
      default:
        with.add(fencing::value_of(place, s));
        break;
    }
  }
  return with;
}

value value_at(const answer& rows, int row, int column) {
  if (rows.is_null(row, column)) {
    return nullptr;
  }
  const auto text = rows.text(row, column);
  switch (PQftype(rows.raw(), column)) {
    case int2_oid:
    case int4_oid:
    case int8_oid:
      return rows.integer(row, column);
    case bool_oid:
      return rows.truth(row, column);
    case float4_oid:
    case float8_oid:
      return real_value(text);
    case bytea_oid:
      return bytes_value(text);
    default:
      return value{text};
  }
}

std::vector<row> returned_rows(const answer& rows) {
  std::vector<row> all;
  for (int i = 0; i < rows.rows(); ++i) {
    auto& one = all.emplace_back();
    for (int c = 0; c < rows.columns(); ++c) {
      one.push_back(value_at(rows, i, c));
    }
  }
  return all;
}

row_verdict judge_row(const answer& rows, int row, int at, const statement& s,
                      const grant& g, write_rule rule) {
  using kind = row_verdict::kind;
  if (rows.is_null(row, at)) {
    return {kind::unfit, 0, {}};
  }
  const auto fence = rows.integer(row, at);
  auto seen = mark::from_store(fence);
  if (!seen) {
    return {kind::unfit, fence, {}};
  }
  switch (judge(g.token(), *seen, rule)) {
    case verdict::stale:
      return {kind::stale, fence, {}};
    case verdict::repeated:
      return {kind::repeated, fence, {}};
    default:
      break;
  }
  for (std::size_t i = 0; i < s.requirements().size(); ++i) {
    if (!rows.truth(row, at + 1 + static_cast<int>(i))) {
      return {kind::refused, fence, s.requirements()[i].column};
    }
  }
  return {kind::passes, fence, {}};
}

result<receipt> outcome_of(const row_verdict& v, std::string_view row,
                           std::string_view fence_column, const statement& s,
                           const grant& g) {
  using kind = row_verdict::kind;
  switch (v.what) {
    case kind::repeated:
      return receipt{0, true, {}};
    case kind::stale:
      return about(fail(errc::stale_token,
                        fmt::format("{} of '{}' was written under a newer "
                                    "token",
                                    row, s.table())),
                   g)
          .seen(v.fence);
    case kind::refused:
      return about(fail(errc::precondition_failed,
                        fmt::format("what is required of the column '{}' does "
                                    "not hold of {} of '{}'",
                                    v.column, row, s.table())),
                   g);
    case kind::unfit:
      return about(unfit(fence_column, s), g);
    case kind::passes:
      break;
  }
  return skipped(s, g);
}

error no_such_row(const statement& s, const grant& g) {
  return about(fail(errc::missing,
                    fmt::format("there is no such row as {} in '{}', or a "
                                "policy hides it",
                                key_text(s), s.table())),
               g);
}

error is_there_already(const statement& s, const grant& g) {
  return about(
      fail(errc::precondition_failed,
           fmt::format("{} of '{}' is there already", key_text(s), s.table())),
      g);
}

error skipped(const statement& s, const grant& g) {
  return about(fail(errc::precondition_failed,
                    fmt::format("a trigger, rule or policy of '{}' skipped "
                                "the write; nothing was written",
                                s.table())),
               g);
}

std::string key_text(const statement& s) {
  std::string text;
  for (const auto& m : s.matches()) {
    text += text.empty() ? "the row " : ", ";
    text += fmt::format("{} = {}", m.column, m.any_of[0].describe());
  }
  return text.empty() ? "the row" : text;
}

std::string identity_text(const answer& rows, int row, int at,
                          const std::vector<std::string>& columns) {
  std::string text;
  for (const auto& column : columns) {
    text += text.empty() ? "the row " : ", ";
    text += fmt::format("{} = {}", column, value_at(rows, row, at).describe());
    ++at;
  }
  return text.empty() ? "a row" : text;
}

}  // namespace lastdoor::postgres

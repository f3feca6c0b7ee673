// The checks of a statement, and its shape. See render.hpp.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>

#include "render.hpp"
#include "text.hpp"

namespace lastdoor::fencing {

namespace {

using verb = statement::verb;
using change = statement::change;

error refuse(std::string why) {
  return fail(errc::invalid_argument, std::move(why));
}

// Values that one statement may bind: SQLite's limit is 32,766, that of the
// others is 65,535. What is left is for the grant.
constexpr std::size_t most_values = 32'000;

std::size_t characters(std::string_view name) {
  std::size_t n = 0;
  for (const char c : name) {
    n += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  }
  return n;
}

// Why a well-formed name cannot be one in the dialect; empty when it can.
std::string_view unfit(std::string_view name, dialect d) {
  if (d == dialect::postgres && name.size() > 63) {
    return "has more than 63 bytes, which Postgres would cut off";
  }
  if (d != dialect::mariadb) {
    return {};
  }
  if (characters(name) > 64) {
    return "has more than 64 characters";
  }
  if (name.back() == ' ') {
    return "ends with a blank";
  }
  for (const char c : name) {
    if (static_cast<unsigned char>(c) >= 0xF0) {
      return "holds a character above U+FFFF";
    }
  }
  return {};
}

result<void> check_name(std::string_view what, std::string_view name,
                        dialect d) {
  std::string_view why;
  if (name.empty()) {
    why = "is empty";
  } else if (name.find('\0') != std::string_view::npos) {
    why = "holds U+0000";
  } else if (!valid_utf8(name)) {
    why = "is not UTF-8";
  } else {
    why = unfit(name, d);
  }
  if (why.empty()) {
    return {};
  }
  return refuse(
      fmt::format("{} '{}' {}", what, printable(name.substr(0, 80)), why));
}

result<void> check_names(const statement& s, const render_options& o) {
  auto ok = check_name("the table", s.table(), o.target);
  if (ok && !s.schema().empty()) {
    ok = check_name("the schema", s.schema(), o.target);
  }
  if (ok) {
    ok = check_name("the fence column", o.fence_column, o.target);
  }
  const auto column = [&](const std::string& name) {
    if (ok) {
      ok = check_name("the column", name, o.target);
    }
  };
  for (const auto& m : s.matches()) {
    column(m.column);
  }
  for (const auto& a : s.assignments()) {
    column(a.column);
  }
  for (const auto& r : s.requirements()) {
    column(r.column);
  }
  for (const auto& r : s.returned()) {
    column(r);
  }
  return ok;
}

bool is_key(const statement& s, std::string_view column, dialect d) {
  for (const auto& m : s.matches()) {
    if (same_name(m.column, column, d)) {
      return true;
    }
  }
  return false;
}

result<void> check_columns(const statement& s, const render_options& o) {
  const auto& keys = s.matches();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (same_name(keys[i].column, o.fence_column, o.target)) {
      return refuse("the fence column is no key");
    }
    for (std::size_t k = 0; k < i; ++k) {
      if (same_name(keys[i].column, keys[k].column, o.target)) {
        return refuse(fmt::format("the key column '{}' is named twice",
                                  printable(keys[i].column)));
      }
    }
  }
  const auto& sets = s.assignments();
  for (std::size_t i = 0; i < sets.size(); ++i) {
    const auto& column = sets[i].column;
    if (same_name(column, o.fence_column, o.target)) {
      return refuse(fmt::format("'{}' is the fence; only a grant sets it",
                                printable(column)));
    }
    if (is_key(s, column, o.target)) {
      return refuse(
          fmt::format("'{}' is a key of this statement; a row keeps its key",
                      printable(column)));
    }
    for (std::size_t k = 0; k < i; ++k) {
      if (same_name(column, sets[k].column, o.target)) {
        return refuse(fmt::format("'{}' is assigned twice", printable(column)));
      }
    }
  }
  return {};
}

result<void> check_row_verbs(const statement& s) {
  if (s.wants_every_row() && !s.matches().empty()) {
    return refuse(
        "a statement names rows by key or means every row, not "
        "both");
  }
  if (!s.wants_every_row() && s.matches().empty()) {
    return refuse("no key: say which row, or every_row()");
  }
  if (s.what() == verb::update && s.assignments().empty()) {
    return refuse("an update needs something to set");
  }
  if (s.what() == verb::erase && !s.assignments().empty()) {
    return refuse("an erase has nothing to set");
  }
  return {};
}

// MariaDB's upsert has no condition of its own: each assignment repeats the
// requirement and would see the columns that those before it have changed.
bool requirement_moves(const statement& s, const render_options& o) {
  if (o.target != dialect::mariadb) {
    return false;
  }
  for (const auto& r : s.requirements()) {
    for (const auto& a : s.assignments()) {
      if (same_name(a.column, r.column, o.target)) {
        return true;
      }
    }
  }
  return false;
}

result<void> check_insert_verbs(const statement& s, const render_options& o) {
  if (s.wants_every_row()) {
    return refuse("every_row() goes with update and erase");
  }
  for (const auto& m : s.matches()) {
    if (m.any_of.size() != 1) {
      return refuse("an insert or upsert is of one row; use key()");
    }
  }
  if (s.what() == verb::insert) {
    if (s.matches().empty() && s.assignments().empty()) {
      return refuse("an insert needs at least one column");
    }
    if (!s.requirements().empty()) {
      return refuse("an insert has no row before it to require anything of");
    }
    for (const auto& a : s.assignments()) {
      if (a.how != change::set) {
        return refuse("an insert has nothing to add to; use set() or upsert");
      }
    }
    return {};
  }
  if (s.matches().empty()) {
    return refuse("no key: an upsert must say which row");
  }
  if (same_name(s.table(), "excluded", dialect::sqlite)) {
    return refuse("a table named 'excluded' cannot take an upsert");
  }
  if (requirement_moves(s, o)) {
    return refuse("MariaDB cannot upsert a column that is also required");
  }
  return {};
}

result<void> check_value(const value& v) {
  if (const auto* t = v.text()) {
    if (t->find('\0') != std::string::npos) {
      return refuse("a text value holds U+0000");
    }
    if (!valid_utf8(*t)) {
      return refuse("a text value is not UTF-8; bytes go into a blob");
    }
  } else if (const auto* d = v.real(); d != nullptr && !std::isfinite(*d)) {
    return refuse("a number must be finite");
  }
  return {};
}

bool summable(const statement::assignment& a) {
  if (const auto* i = a.operand.integer()) {
    return *i != std::numeric_limits<std::int64_t>::min();
  }
  return a.operand.real() != nullptr;
}

std::size_t mix(std::size_t seed, std::size_t more) noexcept {
  return (seed ^ more) * std::size_t{0x9E3779B97F4A7C15};
}

std::size_t mix(std::size_t seed, std::string_view name) noexcept {
  return mix(seed, std::hash<std::string_view>{}(name));
}

}  // namespace

bool same_name(std::string_view a, std::string_view b, dialect d) noexcept {
  if (d == dialect::postgres) {
    return a == b;
  }
  const auto fold = [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  if (a.size() != b.size()) {
    return false;
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (fold(a[i]) != fold(b[i])) {
      return false;
    }
  }
  return true;
}

result<void> check_shape(const statement& s, const render_options& o) {
  if (auto ok = check_names(s, o); !ok) {
    return ok;
  }
  if (auto ok = check_columns(s, o); !ok) {
    return ok;
  }
  std::size_t values = s.assignments().size() + s.requirements().size();
  for (const auto& m : s.matches()) {
    if (m.any_of.empty()) {
      return refuse(
          fmt::format("no values for the key '{}'", printable(m.column)));
    }
    values += m.any_of.size();
  }
  if (values > most_values) {
    return refuse(
        fmt::format("at most {} values fit in one statement", most_values));
  }
  const bool adds = s.what() == verb::insert || s.what() == verb::upsert;
  return adds ? check_insert_verbs(s, o) : check_row_verbs(s);
}

result<void> check_values(const statement& s) {
  for (const auto& m : s.matches()) {
    for (const auto& v : m.any_of) {
      if (v.is_null()) {
        return refuse(fmt::format("the key '{}' is NULL, which names no row",
                                  printable(m.column)));
      }
      if (auto ok = check_value(v); !ok) {
        return ok;
      }
    }
  }
  for (const auto& a : s.assignments()) {
    if (a.how != change::set && !summable(a)) {
      return refuse(fmt::format("only a number can be added to '{}'",
                                printable(a.column)));
    }
    if (auto ok = check_value(a.operand); !ok) {
      return ok;
    }
  }
  for (const auto& r : s.requirements()) {
    if (auto ok = check_value(r.holds.operand); !ok) {
      return ok;
    }
  }
  return {};
}

std::size_t shape_hash(const statement& s) noexcept {
  std::size_t h = mix(static_cast<std::size_t>(s.what()), s.table());
  h = mix(h, s.schema());
  h = mix(h, std::size_t{s.wants_every_row() ? 1U : 0U});
  for (const auto& m : s.matches()) {
    h = mix(mix(h, m.column), m.any_of.size());
  }
  for (const auto& a : s.assignments()) {
    h = mix(mix(h, a.column), static_cast<std::size_t>(a.how));
  }
  for (const auto& r : s.requirements()) {
    h = mix(mix(h, r.column), static_cast<std::size_t>(r.holds.op));
  }
  for (const auto& column : s.returned()) {
    h = mix(h, column);
  }
  return h;
}

bool same_shape(const statement& a, const statement& b) noexcept {
  const auto equal = [](const auto& x, const auto& y, auto same) {
    if (x.size() != y.size()) {
      return false;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!same(x[i], y[i])) {
        return false;
      }
    }
    return true;
  };
  return a.what() == b.what() && a.table() == b.table() &&
         a.schema() == b.schema() &&
         a.wants_every_row() == b.wants_every_row() &&
         equal(a.matches(), b.matches(),
               [](const auto& x, const auto& y) {
                 return x.column == y.column &&
                        x.any_of.size() == y.any_of.size();
               }) &&
         equal(a.assignments(), b.assignments(),
               [](const auto& x, const auto& y) {
                 return x.column == y.column && x.how == y.how;
               }) &&
         equal(a.requirements(), b.requirements(),
               [](const auto& x, const auto& y) {
                 return x.column == y.column && x.holds.op == y.holds.op;
               }) &&
         a.returned() == b.returned();
}

statement shape_of(const statement& s) {
  statement out{s.what(), s.table()};
  out.in_schema(s.schema());
  if (s.wants_every_row()) {
    out.every_row();
  }
  for (const auto& m : s.matches()) {
    out.keys(m.column, std::vector<value>(m.any_of.size()));
  }
  for (const auto& a : s.assignments()) {
    if (a.how == change::set) {
      out.set(a.column, nullptr);
    } else if (a.how == change::add) {
      out.add(a.column, nullptr);
    } else {
      out.subtract(a.column, nullptr);
    }
  }
  for (const auto& r : s.requirements()) {
    out.require(r.column, {r.holds.op, {}});
  }
  out.returning(s.returned());
  return out;
}

}  // namespace lastdoor::fencing

#include "render.hpp"

#include <algorithm>
#include <utility>

namespace lastdoor::fencing {

namespace {

using verb = statement::verb;
using change = statement::change;
using kind = condition::kind;
using origin = slot::origin;

// Collects text and slots; knows how a dialect spells things.
class writer {
 public:
  writer(const statement& s, const render_options& o) : s_{s}, o_{o} {
    out_.sql.reserve(384);
  }

  writer& text(std::string_view t) {
    out_.sql += t;
    return *this;
  }
  writer& name(std::string_view n) {
    append_quoted(out_.sql, n, o_.target);
    return *this;
  }
  // The table as a target: with its schema.
  writer& table() {
    const std::string_view schema =
        s_.schema().empty() ? o_.default_schema : s_.schema();
    if (!schema.empty()) {
      name(schema).text(".");
    }
    return name(s_.table());
  }
  // A column as an expression.
  writer& column(std::string_view c) {
    return name(s_.table()).text(".").name(c);
  }
  writer& fence() { return column(o_.fence_column); }

  writer& bind(slot at) {
    if (o_.target == dialect::mariadb) {
      out_.slots.push_back(at);
      return text("?");
    }
    const auto found = std::find(out_.slots.begin(), out_.slots.end(), at);
    const auto number = found - out_.slots.begin() + 1;
    if (found == out_.slots.end()) {
      out_.slots.push_back(at);
    }
    return text(o_.target == dialect::sqlite ? "?" : "$")
        .text(std::to_string(number));
  }
  writer& token() { return bind({origin::token}); }

  [[nodiscard]] const statement& what() const { return s_; }
  [[nodiscard]] const render_options& options() const { return o_; }
  [[nodiscard]] bool is(dialect d) const { return o_.target == d; }
  [[nodiscard]] rendered finish() { return std::move(out_); }

 private:
  const statement& s_;
  const render_options& o_;
  rendered out_;
};

std::uint32_t at(std::size_t i) { return static_cast<std::uint32_t>(i); }

std::string_view comparison(kind op) {
  switch (op) {
    case kind::equals:
      return " = ";
    case kind::differs:
      return " <> ";
    case kind::at_least:
      return " >= ";
    case kind::at_most:
      return " <= ";
    case kind::above:
      return " > ";
    case kind::below:
      return " < ";
    case kind::is_null:
      return " IS NULL";
    case kind::not_null:
      return " IS NOT NULL";
  }
  return " = ";
}

void requirement(writer& w, std::size_t i) {
  const auto& r = w.what().requirements()[i];
  w.column(r.column).text(comparison(r.holds.op));
  if (r.holds.op != kind::is_null && r.holds.op != kind::not_null) {
    w.bind({origin::requirement, at(i)});
  }
}

void match(writer& w, std::size_t i) {
  const auto& m = w.what().matches()[i];
  w.column(m.column);
  if (m.any_of.size() == 1) {
    w.text(" = ").bind({origin::match, at(i)});
    return;
  }
  w.text(" IN (");
  for (std::size_t k = 0; k < m.any_of.size(); ++k) {
    w.text(k == 0 ? "" : ", ").bind({origin::match, at(i), at(k)});
  }
  w.text(")");
}

// " WHERE a AND b": the matches, or nothing when every row is meant.
bool where_matches(writer& w) {
  const auto n = w.what().matches().size();
  for (std::size_t i = 0; i < n; ++i) {
    w.text(i == 0 ? " WHERE " : " AND ");
    match(w, i);
  }
  return n != 0;
}

std::string_view fence_comparison(write_rule rule) {
  return rule == write_rule::once_per_grant ? " < " : " <= ";
}

// The fence as a condition, against what `right` writes. The plus signs take
// the affinity away: in a column of type TEXT '10' < 9 would be true, while a
// text as such is above every number, so that the write is refused.
template <class Right>
void fence_condition(writer& w, Right right) {
  const std::string_view bare = w.is(dialect::sqlite) ? "+" : "";
  w.text(bare).fence().text(fence_comparison(w.options().rule)).text(bare);
  right();
}

std::string_view marks_table(dialect d) {
  switch (d) {
    case dialect::sqlite:
      return "\"main\".\"lastdoor_marks\"";
    case dialect::postgres:
      return "lastdoor.marks";
    case dialect::mariadb:
      return "`lastdoor_marks`";
  }
  return "";
}

// SELECT ... FROM marks WHERE it is exactly the grant's row.
void ledger_select(writer& w, std::string_view what) {
  w.text("(SELECT ").text(what).text(" FROM ");
  w.text(marks_table(w.options().target));
  w.text(" AS m WHERE m.resource = ").bind({origin::resource});
  w.text(" AND m.token = ").token();
  w.text(" AND m.owner = ").bind({origin::owner});
  w.text(" AND m.source = ").bind({origin::source});
}

// Nothing of the outer query stands in it, so Postgres answers it once, and
// before it looks at the table: no newer grant can raise the mark, whose row is
// locked, before this statement has committed. (A common table expression does
// the same and is slower.) The look may leave the evidence that guards ask
// for, which lasts as long as the lock: by a function and not by operators,
// which a session's search_path could replace.
void postgres_ledger_condition(writer& w) {
  ledger_select(
      w, w.options().evidence
             ? "pg_catalog.set_config('lastdoor.evidence', pg_catalog.concat("
               "pg_catalog.pg_current_xact_id(), ' ', m.token, ' ', "
               "m.resource), true) IS NOT NULL"
             : "true");
  w.text(" FOR SHARE)");
}

// SQLite has one writer. MariaDB locks what a locking read in the condition
// reads.
void ledger_condition(writer& w) {
  if (w.is(dialect::postgres)) {
    return postgres_ledger_condition(w);
  }
  w.text("EXISTS ");
  ledger_select(w, "1");
  w.text(w.is(dialect::mariadb) ? " LOCK IN SHARE MODE)" : ")");
}

// Everything that must hold of a row that is there.
void row_conditions(writer& w) {
  const bool any = where_matches(w);
  w.text(any ? " AND " : " WHERE ");
  for (std::size_t i = 0; i < w.what().requirements().size(); ++i) {
    requirement(w, i);
    w.text(" AND ");
  }
  fence_condition(w, [&] { w.token(); });
  if (w.options().ledger) {
    w.text(" AND ");
    ledger_condition(w);
  }
}

void returning(writer& w) {
  const auto& columns = w.what().returned();
  const bool has_it =
      !w.is(dialect::mariadb) || w.what().what() != verb::update;
  if (columns.empty() || !has_it) {
    return;
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    w.text(i == 0 ? " RETURNING " : ", ");
    // MariaDB knows the bare name only here.
    if (w.is(dialect::mariadb)) {
      w.name(columns[i]);
    } else {
      w.column(columns[i]);
    }
  }
}

// column + operand. SQLite answers a floating point number, near enough to be
// wrong, when the sum of two integers does not fit; abs() of the least integer
// fails with "integer overflow" instead.
template <class Operand>
void sum(writer& w, std::string_view column, std::string_view sign,
         const Operand& operand) {
  const auto plain = [&] { operand(w.column(column).text(sign)); };
  if (!w.is(dialect::sqlite)) {
    plain();
    return;
  }
  w.text("CASE WHEN typeof(").column(column).text(") = 'integer' AND typeof(");
  operand(w);
  w.text(") = 'integer' AND typeof(");
  plain();
  w.text(") = 'real' THEN abs(-9223372036854775807 - (typeof(");
  w.column(column).text(") = 'integer')) ELSE ");
  plain();
  w.text(" END");
}

void render_update(writer& w) {
  // OR ABORT: a table may say ON CONFLICT REPLACE of itself, and that would
  // delete rows whose fence nobody looked at.
  w.text(w.is(dialect::sqlite) ? "UPDATE OR ABORT " : "UPDATE ").table();
  w.text(" SET ");
  const auto& all = w.what().assignments();
  for (std::size_t i = 0; i < all.size(); ++i) {
    w.name(all[i].column).text(" = ");
    const auto operand = [&](writer& to) {
      to.bind({origin::assignment, at(i)});
    };
    if (all[i].how == change::set) {
      operand(w);
    } else {
      sum(w, all[i].column, all[i].how == change::add ? " + " : " - ", operand);
    }
    w.text(", ");
  }
  w.name(w.options().fence_column).text(" = ").token();
  row_conditions(w);
  returning(w);
}

void render_erase(writer& w) {
  w.text("DELETE FROM ").table();
  row_conditions(w);
  returning(w);
}

// INSERT INTO t (keys, columns, fence) and the values for it.
void insert_head(writer& w) {
  w.text(w.is(dialect::sqlite) ? "INSERT OR ABORT INTO " : "INSERT INTO ");
  w.table().text(" (");
  for (const auto& m : w.what().matches()) {
    w.name(m.column).text(", ");
  }
  for (const auto& a : w.what().assignments()) {
    w.name(a.column).text(", ");
  }
  w.name(w.options().fence_column);
  w.text(w.options().ledger ? ") SELECT " : ") VALUES (");
  for (std::size_t i = 0; i < w.what().matches().size(); ++i) {
    w.bind({origin::match, at(i)}).text(", ");
  }
  for (std::size_t i = 0; i < w.what().assignments().size(); ++i) {
    const bool minus = w.what().assignments()[i].how == change::subtract;
    w.bind({minus ? origin::negated : origin::assignment, at(i)}).text(", ");
  }
  w.token();
  if (!w.options().ledger) {
    w.text(")");
    return;
  }
  w.text(w.is(dialect::mariadb) ? " FROM DUAL WHERE " : " WHERE ");
  ledger_condition(w);
}

void render_insert(writer& w) {
  insert_head(w);
  returning(w);
}

void upsert_conditions(writer& w, std::string_view offered) {
  for (std::size_t i = 0; i < w.what().requirements().size(); ++i) {
    requirement(w, i);
    w.text(" AND ");
  }
  fence_condition(w, [&] { w.text(offered); });
}

// ON CONFLICT (key) DO UPDATE ... WHERE. What was offered for insertion is
// called `excluded`; the sign of a subtraction is in it already.
void conflict_clause(writer& w) {
  w.text(" ON CONFLICT (");
  for (std::size_t i = 0; i < w.what().matches().size(); ++i) {
    w.text(i == 0 ? "" : ", ").name(w.what().matches()[i].column);
  }
  w.text(") DO UPDATE SET ");
  for (const auto& a : w.what().assignments()) {
    w.name(a.column).text(" = ");
    const auto offered = [&](writer& to) {
      to.text("excluded.").name(a.column);
    };
    if (a.how == change::set) {
      offered(w);
    } else {
      sum(w, a.column, " + ", offered);
    }
    w.text(", ");
  }
  w.name(w.options().fence_column).text(" = excluded.");
  w.name(w.options().fence_column).text(" WHERE ");
  std::string offered{"excluded."};
  append_quoted(offered, w.options().fence_column, w.options().target);
  upsert_conditions(w, offered);
}

// MariaDB has no condition on its upsert: each assignment carries it, and
// the fence, which they all read, changes last.
void duplicate_clause(writer& w) {
  std::string offered{"VALUES("};
  append_quoted(offered, w.options().fence_column, dialect::mariadb);
  offered += ')';
  const auto guarded = [&](std::string_view column, bool sum) {
    w.name(column).text(" = IF(");
    upsert_conditions(w, offered);
    w.text(", ");
    if (sum) {
      w.column(column).text(" + ");
    }
    w.text("VALUES(").name(column).text("), ").column(column).text(")");
  };
  w.text(" ON DUPLICATE KEY UPDATE ");
  for (const auto& a : w.what().assignments()) {
    guarded(a.column, a.how != change::set);
    w.text(", ");
  }
  guarded(w.options().fence_column, false);
}

void render_upsert(writer& w) {
  insert_head(w);
  if (w.is(dialect::mariadb)) {
    duplicate_clause(w);
  } else {
    conflict_clause(w);
  }
  returning(w);
}

}  // namespace

void append_quoted(std::string& out, std::string_view name, dialect d) {
  const char mark = d == dialect::mariadb ? '`' : '"';
  out += mark;
  for (const char c : name) {
    if (c == mark) {
      out += mark;
    }
    out += c;
  }
  out += mark;
}

rendered render_write(const statement& s, const render_options& o) {
  writer w{s, o};
  switch (s.what()) {
    case verb::update:
      render_update(w);
      break;
    case verb::insert:
      render_insert(w);
      break;
    case verb::upsert:
      render_upsert(w);
      break;
    case verb::erase:
      render_erase(w);
      break;
  }
  return w.finish();
}

rendered render_probe(const statement& s, const render_options& o,
                      std::span<const std::string> also) {
  writer w{s, o};
  w.text("SELECT ").fence();
  for (std::size_t i = 0; i < s.requirements().size(); ++i) {
    w.text(", ");
    requirement(w, i);
  }
  for (const auto& column : also) {
    w.text(", ").column(column);
  }
  w.text(" FROM ").table();
  where_matches(w);
  return w.finish();
}

const value& value_of(const slot& at, const statement& s) {
  switch (at.from) {
    case origin::match:
      return s.matches()[at.index].any_of[at.item];
    case origin::requirement:
      return s.requirements()[at.index].holds.operand;
    default:
      return s.assignments()[at.index].operand;
  }
}

}  // namespace lastdoor::fencing

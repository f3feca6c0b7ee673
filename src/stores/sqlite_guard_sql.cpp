// The text of the guard triggers. See sqlite_guard.hpp.
#include <fmt/format.h>

#include <algorithm>

#include "sqlite_guard.hpp"

namespace lastdoor::sqlite {

namespace {

using sqlite_driver::quoted_name;

std::string literal(std::string_view text) {
  std::string out{"'"};
  for (const char c : text) {
    out += c;
    if (c == '\'') {
      out += c;
    }
  }
  return out += '\'';
}

// Why a write is refused: the condition, and the message of the refusal.
struct objection {
  std::string holds;
  std::string code;
  std::string text;
};

bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() &&
         text.find_first_not_of(allowed) == std::string_view::npos;
}

// A default that means the same in a trigger, and each time. A name in double
// quotes or none is text as a default, but a column in a trigger.
bool is_literal(std::string_view sql) {
  if (sql.size() >= 2 && sql.front() == '\'' && sql.back() == '\'') {
    for (std::size_t at = 1; at + 1 < sql.size(); ++at) {
      if (sql[at] == '\'' && (++at + 1 >= sql.size() || sql[at] != '\'')) {
        return false;
      }
    }
    return true;
  }
  const auto sign = sql.find_first_not_of("+-");
  return sign <= 1 && all_of(sql.substr(sign), "0123456789");
}

// The alias can be no table of a user's: the prefix is taken.
constexpr std::string_view token =
    "(SELECT lastdoor_b.token FROM lastdoor_bearer AS lastdoor_b)";

class guard_writer {
 public:
  guard_writer(const table_info& t, std::string_view fence, guard_mode mode)
      : t_{t},
        table_{quoted_name(t.name)},
        fence_{quoted_name(fence)},
        mode_{mode} {}

  guard_trigger before_insert() const {
    return before("insert", {hidden_key(), in_the_way(), by_hand_unless("0")},
                  key_text("new"), highest_in_the_way(), true);
  }

  guard_trigger before_update() const {
    return before("update",
                  {fenced_off(), hidden_key(), in_the_way(),
                   by_hand_unless("old." + fence_)},
                  key_text("old"), "old." + fence_, true);
  }

  guard_trigger before_delete() const {
    return before("delete", {fenced_off()}, key_text("old"), "old." + fence_,
                  false);
  }

  guard_trigger after_insert() const {
    if (mode_ == guard_mode::strict) {
      return after("inserted", "INSERT", std::string{token});
    }
    return after("inserted", "INSERT", fmt::format("max({})", at_least()));
  }

  guard_trigger after_update() const {
    if (mode_ == guard_mode::strict) {
      return after("updated", "UPDATE", std::string{token});
    }
    return after("updated", "UPDATE",
                 fmt::format("max(old.{}, {})", fence_, at_least()));
  }

 private:
  [[nodiscard]] std::string name(std::string_view what) const {
    return fmt::format("lastdoor_guard_{}_{}", t_.name, what);
  }

  static objection no_token() {
    return {"", "misconfigured", "no token was presented to "};
  }
  static objection overtaken() {
    return {"", "stale_token",
            "a newer token was here than the one presented to "};
  }
  // Objections to the token that `lastdoor_b` bears.
  [[nodiscard]] objection fenced_off() const {
    return {fmt::format("old.{} > lastdoor_b.token", fence_), "stale_token",
            "a newer token has written this row of "};
  }

  [[nodiscard]] objection by_hand_unless(std::string_view as_it_was) const {
    return {
        fmt::format("(new.{0} IS NOT {1} AND new.{0} IS NOT lastdoor_b.token)",
                    fence_, as_it_was),
        "invalid_argument", "only the token sets the fence of "};
  }

  [[nodiscard]] const table_column* with_default(std::string_view name) const {
    const auto* c = t_.find(name);
    return c != nullptr && c->not_null && c->default_sql ? c : nullptr;
  }

  // What the new row will hold: under REPLACE a NULL becomes the default, but
  // only once the guard has looked.
  [[nodiscard]] std::string offered(const key_column& k) const {
    const auto* c = with_default(k.name);
    const auto name = "new." + quoted_name(k.name);
    return c != nullptr && is_literal(*c->default_sql)
               ? fmt::format("coalesce({}, {})", name, *c->default_sql)
               : name;
  }

  // A NULL whose default the guard cannot name, or on which a generated column
  // in a key may depend. Without REPLACE such a NULL fails anyway.
  [[nodiscard]] objection hidden_key() const {
    bool depends = false;
    for (const auto& key : t_.keys) {
      depends = depends || std::any_of(key.columns.begin(), key.columns.end(),
                                       [&](const auto& k) {
                                         const auto* c = t_.find(k.name);
                                         return c != nullptr && c->generated;
                                       });
    }
    std::string any;
    for (const auto& c : t_.columns) {
      if (with_default(c.name) == nullptr || quoted_name(c.name) == fence_ ||
          (!depends && (!in_a_key(c.name) || is_literal(*c.default_sql)))) {
        continue;
      }
      any += any.empty() ? "" : " OR ";
      any += fmt::format("new.{} IS NULL", quoted_name(c.name));
    }
    return {any.empty() ? "0" : fmt::format("({})", any), "invalid_argument",
            "leave a column out instead of giving NULL for its default in "};
  }

  [[nodiscard]] bool in_a_key(std::string_view column) const {
    for (const auto& key : t_.keys) {
      for (const auto& k : key.columns) {
        if (k.name == column) {
          return true;
        }
      }
    }
    return false;
  }

  // FROM and WHERE that find the row which has a key of the new one.
  [[nodiscard]] std::string same_key(const unique_key& key) const {
    std::string where;
    for (const auto& c : key.columns) {
      where += where.empty() ? "" : " AND ";
      where += fmt::format("{}.{} = {} COLLATE {}", table_, quoted_name(c.name),
                           offered(c), quoted_name(c.collation));
    }
    if (!key.predicate.empty()) {
      // On a line of its own, for it may end with a comment.
      where += fmt::format(" AND ({}\n)", key.predicate);
    }
    return fmt::format("FROM {} WHERE {}", table_, where);
  }

  // A row with a higher fence that the new one would replace.
  [[nodiscard]] objection in_the_way() const {
    std::string any;
    for (const auto& key : t_.keys) {
      any += any.empty() ? "" : "\n    OR ";
      any += fmt::format("EXISTS (SELECT 1 {} AND {}.{} > lastdoor_b.token)",
                         same_key(key), table_, fence_);
    }
    return {any.empty() ? "0" : fmt::format("({})", any), "stale_token",
            "a newer token has written a row in the way of this one of "};
  }

  [[nodiscard]] std::string highest_in_the_way() const {
    std::string all;
    for (const auto& key : t_.keys) {
      all += all.empty() ? "" : " UNION ALL ";
      all += fmt::format("SELECT {}.{} AS fence {}", table_, fence_,
                         same_key(key));
    }
    if (all.empty()) {
      return "NULL";
    }
    return fmt::format("(SELECT max(v.fence) FROM ({}) AS v)", all);
  }

  [[nodiscard]] std::string key_text(std::string_view row) const {
    std::string text;
    for (const auto& c : t_.identity) {
      text += text.empty() ? "" : " || ', ' || ";
      text += fmt::format("quote({}.{})", row, quoted_name(c.name));
    }
    return text.empty() ? "NULL" : text;
  }

  // What a fence must not be below in audit mode: the token, what was written
  // by hand, and what a REPLACE took away.
  [[nodiscard]] std::string at_least() const {
    return fmt::format(
        "coalesce({0}, 0), CASE typeof(new.{1}) WHEN 'integer' THEN new.{1} "
        "ELSE 0 END, coalesce((SELECT r.fence FROM lastdoor_replaced AS r "
        "WHERE r.table_name = {2}), 0)",
        token, fence_, literal(t_.name));
  }

  // The first objection, as `code: text`, and '' when there is none. With the
  // token at hand that is one look at one row: what every write pays.
  [[nodiscard]] std::string first_of(const std::vector<objection>& all) const {
    std::string cases;
    for (const auto& o : all) {
      cases +=
          fmt::format("\n    WHEN {} THEN {}", o.holds, literal(message(o)));
    }
    return fmt::format(
        "coalesce((SELECT CASE{}\n    ELSE '' END\n"
        "    FROM lastdoor_bearer AS lastdoor_b),\n"
        "    CASE WHEN EXISTS (SELECT 1 FROM lastdoor_presented)\n"
        "    THEN {}\n    ELSE {} END)",
        cases, literal(message(overtaken())), literal(message(no_token())));
  }

  [[nodiscard]] std::string message(const objection& o) const {
    return fmt::format("{}: {}{}", o.code, o.text, t_.name);
  }

  // RAISE takes a literal, so each message has one of its own.
  [[nodiscard]] std::string refuse(std::vector<objection> all) const {
    const auto first = first_of(all);
    all.push_back(overtaken());
    std::string body = fmt::format("  SELECT CASE {}\n", first);
    for (const auto& o : all) {
      body +=
          fmt::format("    WHEN {} THEN RAISE(ABORT, {})\n",
                      literal(message(o)), literal("lastdoor: " + message(o)));
    }
    return body + fmt::format("    ELSE RAISE(ABORT, {}) END;\n",
                              literal("lastdoor: " + message(no_token())));
  }

  [[nodiscard]] std::string record(std::string_view operation,
                                   const std::vector<objection>& all,
                                   std::string_view key,
                                   std::string_view fence) const {
    return fmt::format(
        "  INSERT INTO lastdoor_audit (table_name, operation, row_key, "
        "reason, resource, presented, fence)\n"
        "  SELECT {}, {}, {}, w.reason,\n"
        "    (SELECT p.resource FROM lastdoor_presented AS p),\n"
        "    (SELECT p.token FROM lastdoor_presented AS p),\n    {}\n"
        "  FROM (SELECT {} AS reason) AS w\n"
        "  WHERE w.reason <> '';\n",
        literal(t_.name), literal(operation), key, fence, first_of(all));
  }

  [[nodiscard]] std::string forget_replaced() const {
    return fmt::format(
        "  DELETE FROM lastdoor_replaced WHERE table_name = {};\n",
        literal(t_.name));
  }

  [[nodiscard]] std::string note_replaced() const {
    return fmt::format(
        "{}  INSERT INTO lastdoor_replaced (table_name, fence)\n"
        "  SELECT {}, w.fence FROM (SELECT {} AS fence) AS w\n"
        "  WHERE w.fence > coalesce({}, 0);\n",
        forget_replaced(), literal(t_.name), highest_in_the_way(), token);
  }

  [[nodiscard]] guard_trigger before(std::string_view what,
                                     std::vector<objection> all,
                                     std::string_view key,
                                     std::string_view fence,
                                     bool may_replace) const {
    std::erase_if(all, [](const auto& o) { return o.holds == "0"; });
    std::string body;
    if (mode_ == guard_mode::strict) {
      body =
          fmt::format("WHEN {} <> ''\nBEGIN\n{}", first_of(all), refuse(all));
    } else {
      body = "BEGIN\n" + record(what, all, key, fence);
      body += may_replace ? note_replaced() : "";
    }
    return {name(what),
            fmt::format("CREATE TRIGGER {} BEFORE {} ON {}\n{}END",
                        quoted_name(name(what)), what, table_, body)};
  }

  // The row itself, whatever its key is; a key may be NULL, a row id not.
  [[nodiscard]] std::string this_row() const {
    const auto* address = &t_.identity;
    for (const auto& key : t_.keys) {
      if (key.index.empty()) {
        address = &key.columns;
      }
    }
    std::string where;
    for (const auto& c : *address) {
      where += where.empty() ? "" : " AND ";
      where += fmt::format("{0}.{1} IS new.{1} COLLATE {2}", table_,
                           quoted_name(c.name), quoted_name(c.collation));
    }
    return where;
  }

  [[nodiscard]] guard_trigger after(std::string_view what,
                                    std::string_view event,
                                    std::string_view target) const {
    const bool audit = mode_ == guard_mode::audit;
    return {name(what),
            fmt::format("CREATE TRIGGER {} AFTER {} ON {}\n"
                        "WHEN new.{} IS NOT {}\n"
                        "BEGIN\n"
                        "  UPDATE {} SET {} = {}\n  WHERE {};\n{}END",
                        quoted_name(name(what)), event, table_, fence_, target,
                        table_, fence_, target, this_row(),
                        audit ? forget_replaced() : "")};
  }

  const table_info& t_;
  std::string table_;
  std::string fence_;
  guard_mode mode_;
};

}  // namespace

std::vector<guard_trigger> guard_triggers(const table_info& t,
                                          std::string_view fence,
                                          guard_mode mode) {
  if (mode == guard_mode::none) {
    return {};
  }
  const guard_writer w{t, fence, mode};
  return {w.before_insert(), w.before_update(), w.before_delete(),
          w.after_insert(), w.after_update()};
}

}  // namespace lastdoor::sqlite

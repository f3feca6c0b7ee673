// The text of the guard triggers. See sqlite_guard.hpp.
#include <fmt/format.h>

#include "sqlite_guard.hpp"

namespace lastdoor::sqlite {

namespace {

using sqlite_driver::quoted;

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

// The alias can be no table of a user's: the prefix is taken.
constexpr std::string_view token =
    "(SELECT lastdoor_b.token FROM lastdoor_bearer AS lastdoor_b)";

class guard_writer {
 public:
  guard_writer(const table_info& t, std::string_view fence, guard_mode mode)
      : t_{t}, table_{quoted(t.name)}, fence_{quoted(fence)}, mode_{mode} {}

  guard_trigger before_insert() const {
    return before("insert", {in_the_way(), by_hand_unless("0")},
                  key_text("new"), highest_in_the_way(), true);
  }

  guard_trigger before_update() const {
    return before("update",
                  {fenced_off(), in_the_way(), by_hand_unless("old." + fence_)},
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

  // FROM and WHERE that find the row which has a key of the new one.
  [[nodiscard]] std::string same_key(const unique_key& key) const {
    std::string where;
    for (const auto& c : key.columns) {
      where += where.empty() ? "" : " AND ";
      where += fmt::format("{0}.{1} = new.{1} COLLATE {2}", table_,
                           quoted(c.name), quoted(c.collation));
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
      text += fmt::format("quote({}.{})", row, quoted(c.name));
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
                                     const std::vector<objection>& all,
                                     std::string_view key,
                                     std::string_view fence,
                                     bool may_replace) const {
    std::string body;
    if (mode_ == guard_mode::strict) {
      body =
          fmt::format("WHEN {} <> ''\nBEGIN\n{}", first_of(all), refuse(all));
    } else {
      body = "BEGIN\n" + record(what, all, key, fence);
      body += may_replace ? note_replaced() : "";
    }
    return {name(what), fmt::format("CREATE TRIGGER {} BEFORE {} ON {}\n{}END",
                                    quoted(name(what)), what, table_, body)};
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
                           quoted(c.name), quoted(c.collation));
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
                        quoted(name(what)), event, table_, fence_, target,
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

#include "redis_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fencing/render.hpp"
#include "fencing/text.hpp"
#include "redis_text.hpp"

namespace lastdoor {

namespace {

using verb = statement::verb;
using change = statement::change;
using detail::redis_step;

constexpr std::string_view fence = "fence_token";
constexpr std::size_t most_words = 1000;  // of one command

error refuse(std::string why) {
  return fail(errc::invalid_argument, std::move(why));
}

// A part of a row's key. The colon parts them, so none may hold one.
void append_part(std::string& key, std::string_view part) {
  for (const char c : part) {
    if (c == ':' || c == '%') {
      key += c == ':' ? "%3A" : "%25";
    } else {
      key += c;
    }
  }
}

// Which value of each key column names this row.
using row_key = std::vector<const value*>;

struct columns_of_key {
  std::vector<const statement::match*> by_name;  // sorted

  explicit columns_of_key(const statement& s) {
    for (const auto& m : s.matches()) {
      by_name.push_back(&m);
    }
    std::sort(by_name.begin(), by_name.end(), [](const auto* a, const auto* b) {
      return a->column < b->column;
    });
  }
  // In the order of `by_name`; at most one column has several values.
  [[nodiscard]] std::vector<row_key> rows() const {
    std::vector<row_key> all{{}};
    for (const auto* m : by_name) {
      std::vector<row_key> longer;
      for (const auto& so_far : all) {
        for (const auto& v : m->any_of) {
          longer.push_back(so_far);
          longer.back().push_back(&v);
        }
      }
      all = std::move(longer);
    }
    return all;
  }
};

result<void> check(const statement& s) {
  if (auto ok = fencing::check_shape(s, {}); !ok) {
    return ok;
  }
  if (auto ok = fencing::check_values(s); !ok) {
    return ok;
  }
  if (s.wants_every_row() || s.matches().empty()) {
    return refuse("Redis has rows by key only; name them");
  }
  if (!s.schema().empty()) {
    return refuse("Redis has no schemas");
  }
  const auto lists =
      std::count_if(s.matches().begin(), s.matches().end(),
                    [](const auto& m) { return m.any_of.size() > 1; });
  if (lists > 1) {
    return refuse("only one column of a key may have several values here");
  }
  if (s.assignments().size() + s.matches().size() > most_words / 2 - 2 ||
      s.returned().size() > most_words) {
    return refuse("too many columns for one row");
  }
  for (const auto& a : s.assignments()) {
    const auto* n = a.operand.integer();
    if (a.how != change::set && (n == nullptr || !redis_countable(*n))) {
      return refuse(fmt::format("'{}': only whole numbers up to 2^53-1 add up",
                                printable(a.column)));
    }
  }
  return {};
}

// The commands of one row; `key_fields` are its key columns, for new rows.
void append_changes(std::vector<redis_step>& to, const statement& s,
                    const std::string& key,
                    const std::vector<std::string>& key_fields,
                    fencing_token token) {
  std::vector<std::string> set{"HSET", std::string{fence}, token.to_string()};
  set.insert(set.end(), key_fields.begin(), key_fields.end());
  std::vector<std::string> removed{"HDEL"};
  std::vector<redis_step> sums;
  for (const auto& a : s.assignments()) {
    if (a.how != change::set) {
      const auto n = *a.operand.integer();
      sums.push_back({"do",
                      key,
                      {"HINCRBY", a.column,
                       std::to_string(a.how == change::add ? n : -n)}});
    } else if (a.operand.is_null()) {
      removed.push_back(a.column);
    } else {
      set.push_back(a.column);
      set.push_back(redis_text(a.operand).value());
    }
  }
  to.push_back({"do", key, std::move(set)});
  to.insert(to.end(), sums.begin(), sums.end());
  if (removed.size() > 1) {
    to.push_back({"do", key, std::move(removed)});
  }
}

// One row on its way into the plan.
struct row_steps {
  std::string key;
  std::vector<std::string> key_fields;
};

result<void> append_checks(redis_plan& plan, const statement& s,
                           const std::vector<row_steps>& rows) {
  for (const auto& r : rows) {
    plan.steps.push_back({"fence", r.key, {}});
  }
  for (const auto& r : rows) {
    if (s.what() == verb::update || s.what() == verb::erase) {
      plan.steps.push_back({"present", r.key, {}});
    } else if (s.what() == verb::insert) {
      plan.steps.push_back({"absent", r.key, {}});
    }
    for (const auto& q : s.requirements()) {
      auto words = redis_condition(q.holds);
      if (!words) {
        return words.error();
      }
      (*words)[2] = s.what() == verb::upsert ? "1" : "0";
      words->push_back(q.column);
      plan.steps.push_back({"if", r.key, std::move(*words)});
    }
  }
  return {};
}

void append_writes(redis_plan& plan, const statement& s,
                   const std::vector<row_steps>& rows, fencing_token token) {
  for (const auto& r : rows) {
    if (s.what() == verb::erase) {
      if (!s.returned().empty()) {
        plan.steps.push_back({"get", r.key, s.returned()});
      }
      plan.steps.push_back({"do", r.key, {"DEL"}});
      continue;
    }
    append_changes(plan.steps, s, r.key, r.key_fields, token);
    if (!s.returned().empty()) {
      plan.steps.push_back({"get", r.key, s.returned()});
    }
  }
}

}  // namespace

result<redis_plan> plan_rows(const statement& s, std::string_view name_space,
                             fencing_token token) {
  if (auto ok = check(s); !ok) {
    return ok.error();
  }
  const bool makes_rows = s.what() == verb::insert || s.what() == verb::upsert;
  const columns_of_key columns{s};
  redis_plan plan;
  std::vector<row_steps> rows;
  for (const auto& values : columns.rows()) {
    row_steps r{fmt::format("{{{}}}:", name_space), {}};
    append_part(r.key, s.table());
    std::string name =
        fmt::format("the row of '{}' with", printable(s.table()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto text = redis_text(*values[i]).value();
      const auto& column = columns.by_name[i]->column;
      r.key += ':';
      append_part(r.key, text);
      name += fmt::format("{} {} = {}", i == 0 ? "" : " and", printable(column),
                          values[i]->describe());
      if (makes_rows) {
        r.key_fields.push_back(column);
        r.key_fields.push_back(text);
      }
    }
    if (!plan.names.emplace(r.key, std::move(name)).second) {
      continue;  // named twice
    }
    std::vector<const value*> known;
    for (const auto& wanted : s.returned()) {
      const auto at =
          std::find_if(columns.by_name.begin(), columns.by_name.end(),
                       [&](const auto* m) { return m->column == wanted; });
      known.push_back(
          at == columns.by_name.end()
              ? nullptr
              : values[static_cast<std::size_t>(at - columns.by_name.begin())]);
    }
    plan.keys_returned.push_back(std::move(known));
    rows.push_back(std::move(r));
  }
  plan.rows = static_cast<std::int64_t>(rows.size());
  if (auto ok = append_checks(plan, s, rows); !ok) {
    return ok.error();
  }
  append_writes(plan, s, rows, token);
  return plan;
}

result<redis_plan> plan_commands(const redis_commands& c) {
  if (!c.fault().empty()) {
    return refuse(c.fault());
  }
  redis_plan plan{c.steps()};
  std::stable_partition(plan.steps.begin(), plan.steps.end(),
                        [](const auto& s) { return s.verb != "do"; });
  plan.rows = std::count_if(plan.steps.begin(), plan.steps.end(),
                            [](const auto& s) { return s.verb == "do"; });
  if (plan.rows == 0) {
    return refuse("a list without a command writes nothing");
  }
  return plan;
}

}  // namespace lastdoor

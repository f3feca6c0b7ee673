// Built writes of the SQLite store inside a transaction that has claimed, and
// the verdict on those that changed nothing. See sqlite_store_impl.hpp.
#include <fmt/format.h>

#include <utility>

#include "fencing/text.hpp"
#include "sqlite_store_impl.hpp"
#include "stores/sqlite_table.hpp"

namespace lastdoor {

namespace {

using sqlite::about;
using sqlite::write_shape;
using verb = statement::verb;

constexpr std::string_view writing = "writing";
constexpr std::string_view looking = "looking at the rows to write";

// The verdict on one row that is there, before anything is written.
struct row_verdict {
  enum class kind : std::uint8_t { passes, repeated, stale, refused, unfit };
  kind what;
  std::int64_t fence{0};
  std::string column;  // of `refused`: whose requirement does not hold
};

row_verdict judge_row(const sqlite_driver::statement& probe, const statement& s,
                      const grant& g, write_rule rule) {
  using kind = row_verdict::kind;
  if (!probe.is_integer(0)) {
    return {kind::unfit, 0, {}};
  }
  const std::int64_t fence = probe.integer(0);
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
    const int at = static_cast<int>(i) + 1;
    if (probe.is_null(at) || probe.integer(at) == 0) {
      return {kind::refused, fence, s.requirements()[i].column};
    }
  }
  return {kind::passes, fence, {}};
}

error unfit(const statement& s, std::string_view column) {
  return fail(errc::schema_mismatch,
              fmt::format("the column '{}' of '{}' holds something that is no "
                          "token; it must be INTEGER NOT NULL",
                          column, s.table()));
}

error fenced_off(std::string_view row, const statement& s) {
  return fail(errc::stale_token,
              fmt::format("{} of '{}' was written under a newer token", row,
                          s.table()));
}

error not_required(std::string_view row, const statement& s,
                   std::string_view column) {
  return fail(errc::precondition_failed,
              fmt::format("what is required of the column '{}' does not hold "
                          "of {} of '{}'",
                          column, row, s.table()));
}

std::string key_text(const statement& s) {
  std::string text;
  for (const auto& m : s.matches()) {
    text += text.empty() ? "the row " : ", ";
    text += fmt::format("{} = {}", m.column, m.any_of[0].describe());
  }
  return text.empty() ? "the row" : text;
}

error no_such_row(const statement& s) {
  return fail(errc::missing, fmt::format("there is no such row as {} in '{}'",
                                         key_text(s), s.table()));
}

// The row that a probe stands on, by its identity columns at the end.
std::string row_text(const sqlite_driver::statement& probe,
                     const write_shape& shape, const statement& s) {
  std::string text;
  int at = static_cast<int>(s.requirements().size());
  for (const auto& column : shape.identity) {
    ++at;
    text += text.empty() ? "the row " : ", ";
    text += fmt::format("{} = {}", column, probe.any(at).describe());
  }
  return text.empty() ? "a row" : text;
}

// `s` with one of its lists cut down to one value.
statement narrowed(const statement& s, std::size_t list, const value& one) {
  statement out{verb::update, s.table()};
  out.in_schema(s.schema());
  for (std::size_t i = 0; i < s.matches().size(); ++i) {
    const auto& m = s.matches()[i];
    out.keys(m.column, i == list ? std::vector<value>{one} : m.any_of);
  }
  return out;
}

}  // namespace

// `untouched` is true when the statement has certainly changed nothing, so
// that the transaction may still commit a claim.
struct sqlite_store::impl::attempt {
  result<receipt> outcome;
  bool untouched;
};

result<receipt> sqlite_store::impl::step_inside(const grant& g,
                                                const statement& s,
                                                write_shape& shape) {
  auto& w = shape.inside;
  if (!w.stmt) {
    if (auto ok = prepare(w, fencing::render_write(s, rendering(false))); !ok) {
      return about(ok.error(), g);
    }
  }
  const sqlite::bound_values bound{w, g, s};
  receipt r;
  for (;;) {
    auto more = w.stmt.step(writing);
    if (!more) {
      auto refused = sqlite::guard_refusal(db_.raw());
      return about(refused ? *refused : more.error(), g);
    }
    if (!*more) {
      break;
    }
    auto& returned = r.returned.emplace_back();
    for (int i = 0; i < w.stmt.columns(); ++i) {
      returned.push_back(w.stmt.any(i));
    }
  }
  r.rows = w.stmt.changes();
  return r;
}

// Why a statement about one row changed nothing: the row itself tells.
result<receipt> sqlite_store::impl::classify(const grant& g, const statement& s,
                                             write_shape& shape) {
  auto& w = shape.probe;
  if (!w.stmt) {
    if (auto ok = prepare(w, fencing::render_probe(s, rendering(false))); !ok) {
      return about(ok.error(), g);
    }
  }
  const sqlite::bound_values bound{w, g, s};
  auto there = w.stmt.step(looking);
  if (!there) {
    return about(there.error(), g);
  }
  if (!*there) {
    return about(no_such_row(s), g);
  }
  using kind = row_verdict::kind;
  const auto found = judge_row(w.stmt, s, g, rule_);
  switch (found.what) {
    case kind::unfit:
      return about(unfit(s, options_.fence_column), g);
    case kind::stale:
      return about(fenced_off(key_text(s), s), g).seen(found.fence);
    case kind::repeated:
      return receipt{0, true, {}};
    case kind::refused:
      return about(not_required(key_text(s), s, found.column), g);
    case kind::passes:
      break;
  }
  if (s.what() == verb::insert) {
    return about(fail(errc::precondition_failed,
                      fmt::format("{} of '{}' is there already", key_text(s),
                                  s.table())),
                 g);
  }
  return about(fail(errc::precondition_failed,
                    fmt::format("a trigger or constraint of '{}' skipped the "
                                "write",
                                s.table())),
               g);
}

// The statement failed, and was taken back. An insert fails on a row that is
// there, and a guard on a row with a higher fence: the row says which.
result<receipt> sqlite_store::impl::explain(const grant& g, const statement& s,
                                            write_shape& shape, error why) {
  const bool row_may_tell = why.code() == errc::precondition_failed ||
                            why.code() == errc::stale_token;
  if (!row_may_tell || s.matches().empty() || !db_.in_transaction()) {
    return why;
  }
  const bool inserting = s.what() == verb::insert;
  auto found = classify(g, s, shape);
  if (found) {
    // An insert under once_per_grant that meets its own row is a repeat.
    return inserting ? found : why;
  }
  const bool tells = found.code() == errc::stale_token ||
                     found.code() == errc::schema_mismatch ||
                     (inserting && found.code() == errc::precondition_failed);
  return tells ? found.error() : why;
}

sqlite_store::impl::attempt sqlite_store::impl::execute_one(
    const grant& g, const statement& s, write_shape& shape) {
  auto r = step_inside(g, s, shape);
  if (!r) {
    return {explain(g, s, shape, r.error()), false};
  }
  if (r->rows == 1) {
    return {std::move(r), false};
  }
  if (r->rows == 0) {
    return {classify(g, s, shape), true};
  }
  // The key was unique when the shape was made.
  schema_moved_ = true;
  return {about(fail(errc::unavailable,
                     fmt::format("the keys of '{}' were changed meanwhile; "
                                 "nothing was written",
                                 s.table())),
                g),
          false};
}

result<void> sqlite_store::impl::find_every_value(const grant& g,
                                                  const statement& s) {
  for (std::size_t i = 0; i < s.matches().size(); ++i) {
    const auto& m = s.matches()[i];
    if (m.any_of.size() < 2) {
      continue;
    }
    const auto first = narrowed(s, i, m.any_of[0]);
    sqlite::prepared_write probe;
    if (auto ok =
            prepare(probe, fencing::render_probe(first, rendering(false)));
        !ok) {
      return about(ok.error(), g);
    }
    for (const auto& v : m.any_of) {
      const auto one = narrowed(s, i, v);
      const sqlite::bound_values bound{probe, g, one};
      auto there = probe.stmt.step(looking);
      if (!there) {
        return about(there.error(), g);
      }
      if (!*there) {
        return about(
            fail(errc::missing, fmt::format("no row of '{}' has {} = {}",
                                            s.table(), m.column, v.describe())),
            g);
      }
    }
  }
  return {};
}

// What a look at all rows of a statement found.
struct sqlite_store::impl::survey {
  std::int64_t rows{0};
  std::int64_t repeated{0};
  std::string first_repeated;
  std::optional<error> refused;
};

result<sqlite_store::impl::survey> sqlite_store::impl::look_at_all(
    const grant& g, const statement& s, write_shape& shape) {
  using kind = row_verdict::kind;
  auto& w = shape.probe;
  if (!w.stmt) {
    if (auto ok = prepare(
            w, fencing::render_probe(s, rendering(false), shape.identity));
        !ok) {
      return about(ok.error(), g);
    }
  }
  const sqlite::bound_values bound{w, g, s};
  survey found;
  for (;; ++found.rows) {
    auto more = w.stmt.step(looking);
    if (!more) {
      return about(more.error(), g);
    }
    if (!*more) {
      return found;
    }
    const auto now = judge_row(w.stmt, s, g, rule_);
    if (now.what == kind::unfit) {
      return about(unfit(s, options_.fence_column), g);
    }
    if (now.what == kind::stale) {
      return about(fenced_off(row_text(w.stmt, shape, s), s), g)
          .seen(now.fence);
    }
    if (now.what == kind::repeated && found.repeated++ == 0) {
      found.first_repeated = row_text(w.stmt, shape, s);
    }
    if (now.what == kind::refused && !found.refused) {
      found.refused =
          about(not_required(row_text(w.stmt, shape, s), s, now.column), g);
    }
  }
}

// All rows or none. They are looked at first, behind the write lock, so that
// the one in the way can be named; the statement carries its conditions all
// the same, and its count must be the count that was seen.
sqlite_store::impl::attempt sqlite_store::impl::execute_many(
    const grant& g, const statement& s, write_shape& shape) {
  auto all = look_at_all(g, s, shape);
  if (!all) {
    return {all.error(), true};
  }
  const bool each_found =
      shape.list_is_unique &&
      std::cmp_equal(all->rows, s.matches()[shape.list].any_of.size());
  if (!each_found) {
    if (auto ok = find_every_value(g, s); !ok) {
      return {ok.error(), true};
    }
  }
  if (all->rows == 0 && !s.wants_every_row()) {
    return {about(no_such_row(s), g), true};
  }
  if (all->repeated != 0) {
    if (all->repeated == all->rows) {
      return {receipt{0, true, {}}, true};
    }
    return {about(fail(errc::precondition_failed,
                       fmt::format("{} of '{}' was written under this grant "
                                   "already, others were not, and the rule is "
                                   "once_per_grant",
                                   all->first_repeated, s.table())),
                  g),
            true};
  }
  if (all->refused) {
    return {*all->refused, true};
  }
  auto r = step_inside(g, s, shape);
  if (r && r->rows != all->rows) {
    return {about(fail(errc::precondition_failed,
                       fmt::format("a trigger or constraint of '{}' skipped "
                                   "some of the rows; nothing was written",
                                   s.table())),
                  g),
            false};
  }
  return {std::move(r), false};
}

result<receipt> sqlite_store::impl::write_slow(const grant& g,
                                               const statement& s,
                                               const write_options& o) {
  auto tx = transaction::begin_immediate(db_, "beginning a write");
  if (!tx) {
    return about(tx.error(), g);
  }
  sqlite::claimed mine;
  bool presented = false;
  if (options_.ledger) {
    auto claimed = ledger_.claim(g);
    if (!claimed) {
      return claimed.error();
    }
    mine = *claimed;
    if (o.sequence && *o.sequence <= mine.last_sequence) {
      return receipt{0, true, {}};
    }
    auto guarded = ledger_.guarded();
    if (!guarded) {
      return about(guarded.error(), g);
    }
    presented = *guarded;
  }
  if (presented) {
    if (auto ok = ledger_.present(g); !ok) {
      return ok.error();
    }
  }
  auto shape = shape_for(s);
  if (!shape) {
    return about(shape.error(), g);
  }
  auto done = (*shape)->one_row ? execute_one(g, s, **shape)
                                : execute_many(g, s, **shape);
  if (done.outcome) {
    return finish(*tx, g, o, presented, std::move(*done.outcome));
  }
  const auto code = done.outcome.code();
  if (done.untouched && mine.raised &&
      (code == errc::missing || code == errc::precondition_failed)) {
    // What the newer holder was told of the row stays true against older
    // ones only if the mark stands. A stale write never gets here.
    finish(*tx, g, {}, presented, {}).ignore();
  }
  return done.outcome;
}

}  // namespace lastdoor

// Built writes of the Postgres store inside a transaction that has claimed,
// and the verdict on those that changed nothing. See postgres_store_impl.hpp.
#include <fmt/format.h>

#include <utility>

#include "stores/postgres_rows.hpp"
#include "stores/postgres_store_impl.hpp"

namespace lastdoor {

namespace {

using postgres::about;
using postgres::write_shape;
using verb = statement::verb;

constexpr std::string_view writing = "writing";
constexpr std::string_view looking = "looking at the rows to write";

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

struct postgres_store::impl::survey {
  std::int64_t rows{0};
  std::int64_t repeated{0};
  std::string first_repeated;
  std::optional<error> refused;
};

// Why a statement about one row changed nothing: the row itself tells.
result<receipt> postgres_store::impl::classify(unit& tx, const grant& g,
                                               const statement& s,
                                               const write_shape& shape) {
  if (s.matches().empty()) {
    return postgres::skipped(s, g);
  }
  auto rows = tx.query(shape.probe, looking, g, s);
  if (!rows) {
    return rows.error();
  }
  if (rows->empty()) {
    return s.what() == verb::update || s.what() == verb::erase
               ? postgres::no_such_row(s, g)
               : postgres::skipped(s, g);
  }
  const auto verdict = postgres::judge_row(*rows, 0, 0, s, g, rule_);
  return postgres::outcome_of(verdict, postgres::key_text(s),
                              options_.fence_column, s, g);
}

result<receipt> postgres_store::impl::execute_one(unit& tx, const grant& g,
                                                  const statement& s,
                                                  const write_shape& shape) {
  auto rows = tx.query(shape.inside, writing, g, s);
  if (!rows) {
    return rows.error();
  }
  if (rows->changes() == 0) {
    return classify(tx, g, s, shape);
  }
  if (rows->changes() > 1) {
    forget_shape(s);  // the key was unique when the shape was made
    return about(fail(errc::unavailable,
                      fmt::format("the keys of '{}' were changed meanwhile; "
                                  "nothing was written",
                                  s.table())),
                 g);
  }
  return receipt{1, false, postgres::returned_rows(*rows)};
}

result<void> postgres_store::impl::find_every_value(unit& tx, const grant& g,
                                                    const statement& s,
                                                    const write_shape& shape) {
  for (std::size_t i = 0; i < s.matches().size(); ++i) {
    const auto& m = s.matches()[i];
    if (m.any_of.size() < 2) {
      continue;
    }
    for (const auto& v : m.any_of) {
      const auto one = narrowed(s, i, v);
      auto options = rendering(false);
      options.default_schema = shape.schema;
      auto probe = fencing::render_probe(one, options);
      auto rows = tx.query({std::move(probe.sql), std::move(probe.slots)},
                           looking, g, one);
      if (!rows) {
        return rows.error();
      }
      if (rows->empty()) {
        return about(
            fail(errc::missing, fmt::format("no row of '{}' has {} = {}, or a "
                                            "policy hides it",
                                            s.table(), m.column, v.describe())),
            g);
      }
    }
  }
  return {};
}

result<postgres_store::impl::survey> postgres_store::impl::look_at_all(
    unit& tx, const grant& g, const statement& s, const write_shape& shape) {
  using kind = postgres::row_verdict::kind;
  auto rows = tx.query(shape.locking_probe, looking, g, s);
  if (!rows) {
    return rows.error();
  }
  const int identity = 1 + static_cast<int>(s.requirements().size());
  survey found;
  found.rows = rows->rows();
  for (int i = 0; i < rows->rows(); ++i) {
    const auto verdict = postgres::judge_row(*rows, i, 0, s, g, rule_);
    if (verdict.what == kind::passes) {
      continue;
    }
    const auto name =
        postgres::identity_text(*rows, i, identity, shape.identity);
    if (verdict.what == kind::repeated) {
      if (found.repeated++ == 0) {
        found.first_repeated = name;
      }
      continue;
    }
    auto outcome =
        postgres::outcome_of(verdict, name, options_.fence_column, s, g);
    if (verdict.what != kind::refused) {
      return outcome.error();
    }
    if (!found.refused) {
      found.refused = outcome.error();
    }
  }
  return found;
}

// All rows or none. They are looked at first, and locked, so that the one in
// the way can be named; the statement carries its conditions all the same. A
// row that comes into being in between was not there when the write began.
result<receipt> postgres_store::impl::execute_many(unit& tx, const grant& g,
                                                   const statement& s,
                                                   const write_shape& shape) {
  auto all = look_at_all(tx, g, s, shape);
  if (!all) {
    return all.error();
  }
  const bool each_found =
      shape.list_is_unique &&
      std::cmp_equal(all->rows, s.matches()[shape.list].any_of.size());
  if (!each_found) {
    if (auto ok = find_every_value(tx, g, s, shape); !ok) {
      return ok.error();
    }
  }
  if (all->rows == 0 && !s.wants_every_row()) {
    return postgres::no_such_row(s, g);
  }
  if (all->repeated != 0) {
    if (all->repeated == all->rows) {
      return receipt{0, true, {}};
    }
    return about(fail(errc::precondition_failed,
                      fmt::format("{} of '{}' was written under this grant "
                                  "already, others were not, and the rule is "
                                  "once_per_grant",
                                  all->first_repeated, s.table())),
                 g);
  }
  if (all->refused) {
    return *all->refused;
  }
  auto rows = tx.query(shape.inside, writing, g, s);
  if (!rows) {
    return rows.error();
  }
  if (rows->changes() < all->rows) {
    return postgres::skipped(s, g);
  }
  return receipt{rows->changes(), false, postgres::returned_rows(*rows)};
}

// The transaction is rolled back, and with it a mark that it had raised. What
// the newer holder is told of the row stays true against older ones only if
// the mark stands, so it is raised by itself. A row that was in the way of an
// insert may be one that a newer holder wrote.
result<receipt> postgres_store::impl::explain(const grant& g,
                                              const statement& s,
                                              const write_shape& shape,
                                              bool raised, error why) {
  if (why.code() != errc::missing && why.code() != errc::precondition_failed) {
    return why;
  }
  if (raised) {
    if (auto ok = claim(g); !ok) {
      return ok.error();
    }
  }
  if (!shape.one_row || !why.backend().starts_with("23")) {
    return why;
  }
  auto loan = pool_.borrow(deadline());
  if (!loan) {
    return why;
  }
  auto found = why_not(**loan, g, s, shape, why);
  const bool tells = found.settled &&
                     (s.what() == verb::insert ||
                      (!*found.settled && found.settled->error().ends_lease()));
  return tells ? std::move(*found.settled) : result<receipt>{why};
}

result<receipt> postgres_store::impl::write_slow(const grant& g,
                                                 const statement& s,
                                                 const write_options& o,
                                                 const write_shape& shape) {
  postgres::claimed claim;
  std::optional<receipt> executed;
  auto done = [&]() -> result<receipt> {
    auto tx = unit::begin(*this, g, o, isolation::read_committed);
    if (!tx) {
      return tx.error();
    }
    claim = tx->claim();
    if (claim.applied) {
      return receipt{0, true, {}};
    }
    auto r = shape.one_row ? execute_one(*tx, g, s, shape)
                           : execute_many(*tx, g, s, shape);
    if (!r || r->already_applied) {
      return r;
    }
    executed = *r;
    if (auto ok = tx->commit(g); !ok) {
      return ok.error();
    }
    return r;
  }();
  if (done) {
    return done;
  }
  if (executed && done.code() == errc::in_doubt) {
    return settle(done.error(), g, claim, o.sequence, std::move(*executed));
  }
  return explain(g, s, shape, claim.raised, done.error());
}

}  // namespace lastdoor

// Built writes of the Postgres store: the one-statement way, and the verdict
// on a statement that changed nothing. See postgres_store_impl.hpp.
#include <fmt/format.h>

#include "stores/postgres_rows.hpp"
#include "stores/postgres_store_impl.hpp"

namespace lastdoor {

namespace {

using postgres::about;
using postgres::write_shape;
using postgres_driver::effect;
using verb = statement::verb;

constexpr std::string_view writing = "writing";
constexpr std::string_view looking = "looking at the row to write";

// Rolled back by the server because of what others did at the same time.
bool rolled_back(const error& e) {
  return e.backend() == "40001" || e.backend() == "40P01";
}

result<void> check_numbers(const write_options& o, bool ledger) {
  if (o.sequence && !ledger) {
    return fail(errc::invalid_argument,
                "the ledger keeps the numbers of writes, and this store was "
                "opened without it");
  }
  if (o.sequence && *o.sequence < 1) {
    return fail(errc::invalid_argument, "writes are numbered from 1");
  }
  return {};
}

}  // namespace

// The look at the ledger's row and the target row is one statement, so both
// are of one moment; it is not the moment of the write that changed nothing.
// Where what is seen would have let the write pass, it is done again with the
// claim held.
postgres_store::impl::attempt postgres_store::impl::why_not(
    connection& db, const grant& g, const statement& s,
    const write_shape& shape, const std::optional<error>& failed) {
  if (s.matches().empty()) {
    return {};
  }
  auto rows = db.run({shape.verdict.sql, looking, effect::reads, deadline()},
                     postgres::bind(shape.verdict, g, s));
  if (!rows) {
    return {about(rows.error(), g)};
  }
  if (options_.ledger) {
    const bool below =
        rows->is_null(0, 0) || rows->integer(0, 0) < g.token().value();
    const postgres::ledger_row ledger{rows->integer(0, 0), rows->text(0, 1),
                                      rows->text(0, 2)};
    if (!rows->is_null(0, 0)) {
      if (auto refused = postgres::refused_by(ledger, g)) {
        return {std::move(*refused)};
      }
    }
    if (below) {
      return {};  // not claimed yet
    }
  }
  const bool there = rows->truth(0, 3);
  if (!there && (s.what() == verb::update || s.what() == verb::erase)) {
    return {postgres::no_such_row(s, g)};
  }
  if (!there) {
    return {};
  }
  using kind = postgres::row_verdict::kind;
  const auto verdict = postgres::judge_row(*rows, 0, 4, s, g, rule_);
  if (verdict.what != kind::passes) {
    return {postgres::outcome_of(verdict, postgres::key_text(s),
                                 options_.fence_column, s, g)};
  }
  if (failed && s.what() == verb::insert) {
    return {postgres::is_there_already(s, g)};
  }
  return {};
}

// The statement was sent and its answer did not come. Under once_per_grant
// the row tells whether it took effect; otherwise nothing does.
postgres_store::impl::attempt postgres_store::impl::after_lost_answer(
    const grant& g, const statement& s, const write_shape& shape, error why) {
  if (rule_ == write_rule::once_per_grant && !s.matches().empty()) {
    auto loan = pool_.borrow(deadline());
    if (loan) {
      auto rows =
          (*loan)->run({shape.verdict.sql, looking, effect::reads, deadline()},
                       postgres::bind(shape.verdict, g, s));
      if (rows && rows->truth(0, 3) &&
          rows->integer(0, 4) == g.token().value()) {
        return {receipt{0, true, {}}};
      }
    }
  }
  return {about(fail(errc::in_doubt,
                     why.text() + "; number the writes of a grant "
                                  "(write_options::sequence) and the store "
                                  "can tell what became of one")
                    .backend(why.backend()),
                g)};
}

postgres_store::impl::attempt postgres_store::impl::write_fast(
    const grant& g, const statement& s, const write_shape& shape) {
  auto loan = pool_.borrow(deadline());
  if (!loan) {
    return {about(loan.error(), g)};
  }
  auto& db = **loan;
  auto rows = db.run({shape.alone.sql, writing, effect::writes, deadline()},
                     postgres::bind(shape.alone, g, s));
  if (rows) {
    const auto changed = rows->changes();
    if (changed == 0) {
      return why_not(db, g, s, shape, std::nullopt);
    }
    if (changed > 1) {
      forget_shape(s);  // the key was unique when the shape was made
    }
    return {receipt{changed, false, postgres::returned_rows(*rows)}};
  }
  auto e = postgres::with_mark_of_guard(rows.error());
  switch (e.code()) {
    case errc::in_doubt: {
      {
        const auto gone = std::move(*loan);
      }  // makes room in the pool
      return after_lost_answer(g, s, shape, std::move(e));
    }
    case errc::schema_mismatch:
      forget_shape(s);
      break;
    case errc::precondition_failed: {
      // A row in the way may be one that a newer holder wrote.
      auto found = why_not(db, g, s, shape, e);
      const bool tells =
          found.settled &&
          (s.what() == verb::insert ||
           (!*found.settled && found.settled->error().ends_lease()));
      if (tells) {
        return found;
      }
      break;
    }
    default:
      break;
  }
  return {about(std::move(e), g)};
}

result<receipt> postgres_store::impl::write_once(
    const grant& g, const statement& s, const write_options& o,
    const postgres::shape_ptr& shape) {
  if (shape->one_row && !o.sequence) {
    auto tried = write_fast(g, s, *shape);
    if (tried.settled) {
      return std::move(*tried.settled);
    }
  }
  return write_slow(g, s, o, *shape);
}

result<receipt> postgres_store::impl::write(const grant& g, const statement& s,
                                            const write_options& o) {
  if (auto ok = check_numbers(o, options_.ledger); !ok) {
    return ok.error();
  }
  if (auto ok = fencing::check_values(s); !ok) {
    return ok.error();
  }
  constexpr int attempts = 4;
  for (int left = attempts;; --left) {
    if (auto ok = still_valid(g); !ok) {
      return ok.error();
    }
    auto shape = shape_for(s);
    if (!shape) {
      return about(shape.error(), g);
    }
    auto done = write_once(g, s, o, *shape);
    if (done || left == 1) {
      return done;
    }
    if (!rolled_back(done.error()) && !again_with_evidence(s, done.error())) {
      return done;
    }
  }
}

}  // namespace lastdoor

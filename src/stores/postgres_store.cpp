#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "stores/postgres_store_impl.hpp"

namespace lastdoor {

namespace {

using postgres::about;
using postgres_driver::answer;
using postgres_driver::arguments;
using postgres_driver::connection;
using postgres_driver::effect;

constexpr std::string_view claiming = "claiming the token";
constexpr std::string_view reading = "reading the ledger";

constexpr std::string_view claim_text =
    "SELECT verdict, mark, mark_source, xid, timeline "
    "FROM lastdoor.claim($1, $2, $3, $4, NULL, $5)";

std::int64_t milliseconds_of(duration d) {
  return std::max<std::int64_t>(
      1, std::chrono::ceil<std::chrono::milliseconds>(d).count());
}

// Sessions of our own begin what they begin as a built write needs it,
// whatever a role's defaults say.
postgres_driver::open_options session_of(const postgres_store_options& o) {
  postgres_driver::open_options session;
  session.time = o.time;
  session.settings = {
      {"lock_timeout", std::to_string(milliseconds_of(o.lock_timeout))},
      {"default_transaction_isolation", "read committed"},
  };
  return session;
}

result<void> check_options(const postgres_store_options& o) {
  const auto zero = duration::zero();
  const bool times = o.lock_timeout > zero && o.lock_timeout < o.call_timeout &&
                     o.call_timeout <= std::chrono::hours{1};
  if (!o.time || !times || o.connections == 0) {
    return fail(errc::invalid_argument,
                "a store needs a clock, a connection, and a lock_timeout "
                "between 0 and its call_timeout of an hour at most");
  }
  return {};
}

postgres::claim_row claim_row_of(const answer& rows) {
  return {rows.text(0, 0), rows.integer(0, 1), rows.text(0, 2), rows.text(0, 3),
          rows.text(0, 4)};
}

}  // namespace

postgres_store::impl::impl(postgres_driver::endpoint where,
                           postgres_store_options options)
    : options_{std::move(options)},
      rule_{options_.rule.value_or(options_.ledger
                                       ? write_rule::many_per_grant
                                       : write_rule::once_per_grant)},
      pool_{std::move(where), session_of(options_), options_.connections} {}

result<std::unique_ptr<postgres_store::impl>> postgres_store::impl::open(
    const std::string& url, postgres_store_options options) {
  if (auto ok = check_options(options); !ok) {
    return ok.error();
  }
  auto where = postgres_driver::parse_endpoint(url);
  if (!where) {
    return where.error();
  }
  std::unique_ptr<impl> made{new impl{std::move(*where), std::move(options)}};
  if (auto ok = made->check_ledger(); !ok) {
    return ok.error();
  }
  return made;
}

result<void> postgres_store::impl::check_ledger() {
  auto rows = ask(
      "SELECT pg_catalog.to_regclass('lastdoor.marks') IS NOT NULL AND "
      "pg_catalog.to_regprocedure('lastdoor.claim(text, bigint, text, text, "
      "bigint, integer)') IS NOT NULL, EXISTS (SELECT FROM "
      "pg_catalog.pg_trigger t "
      "WHERE t.tgfoid = pg_catalog.to_regproc('lastdoor.guard'))",
      "looking for lastdoor's tables");
  if (!rows) {
    return rows.error();
  }
  if (options_.ledger && !rows->truth(0, 0)) {
    return fail(errc::schema_mismatch,
                "the database lacks lastdoor's tables: run lastdoor migrate "
                "up");
  }
  guards_ = rows->truth(0, 1);
  return {};
}

result<void> postgres_store::impl::need_ledger(std::string_view verb) const {
  if (options_.ledger) {
    return {};
  }
  return fail(errc::invalid_argument,
              fmt::format("{} needs the ledger, and this store was opened "
                          "without it",
                          verb));
}

result<void> postgres_store::impl::still_valid(const grant& g) const {
  if (g.valid_at(options_.time->now())) {
    return {};
  }
  return about(fail(errc::lease_lost, "the validity of the grant is over"), g);
}

time_point postgres_store::impl::deadline() const {
  return options_.time->now() + options_.call_timeout;
}

result<answer> postgres_store::impl::ask(std::string_view sql,
                                         std::string_view doing,
                                         const arguments& with) {
  auto loan = pool_.borrow(deadline());
  if (!loan) {
    return loan.error();
  }
  return (*loan)->run({sql, doing, effect::reads, deadline()}, with);
}

result<void> postgres_store::impl::claim(const grant& g) {
  if (auto ok = need_ledger("claim"); !ok) {
    return ok;
  }
  // To claim twice is to claim once, so this may be asked again: after a
  // lost answer, and after 40001, which a role's defaults can bring about.
  constexpr int attempts = 4;
  for (int left = attempts;; --left) {
    if (auto ok = still_valid(g); !ok) {
      return ok;
    }
    auto loan = pool_.borrow(deadline());
    if (!loan) {
      return about(loan.error(), g);
    }
    arguments with;
    with.add(std::string_view{g.resource().str()})
        .add(g.token().value())
        .add(std::string_view{g.owner().str()})
        .add(std::string_view{g.source().str()});
    if (const auto ms = postgres::bound_of(g, options_.time->now())) {
      with.add(*ms);
    } else {
      with.add_null();
    }
    auto rows =
        (*loan)->run({claim_text, claiming, effect::writes, deadline()}, with);
    if (rows) {
      auto claimed = postgres::judge_claim(claim_row_of(*rows), g);
      return claimed ? result<void>{} : result<void>{claimed.error()};
    }
    const auto& e = rows.error();
    const bool again = e.code() == errc::in_doubt || e.backend() == "40001" ||
                       e.backend() == "40P01";
    if (!again || left == 1) {
      return about(e, g);
    }
  }
}

result<mark> postgres_store::impl::read_mark(const resource_name& r) {
  if (auto ok = need_ledger("read_mark"); !ok) {
    return ok.error();
  }
  auto rows = ask("SELECT token FROM lastdoor.marks WHERE resource = $1",
                  reading, arguments{}.add(std::string_view{r.str()}));
  if (!rows) {
    return error{rows.error()}.about(r.str());
  }
  return mark::from_store(rows->empty() ? 0 : rows->integer(0, 0));
}

result<std::vector<mark_status>> postgres_store::impl::list_marks(
    std::string_view after, std::size_t limit) {
  if (auto ok = need_ledger("list_marks"); !ok) {
    return ok.error();
  }
  constexpr std::size_t most = std::numeric_limits<std::int64_t>::max();
  auto rows =
      ask("SELECT resource, token, source, last_sequence FROM lastdoor.marks "
          "WHERE resource > $1 ORDER BY resource LIMIT $2",
          reading,
          arguments{}.add(after).add(
              static_cast<std::int64_t>(std::min(limit, most))));
  if (!rows) {
    return rows.error();
  }
  std::vector<mark_status> marks;
  for (int i = 0; i < rows->rows(); ++i) {
    auto token = mark::from_store(rows->integer(i, 1));
    if (!token) {
      return error{token.error()}.about(rows->text(i, 0));
    }
    marks.push_back({std::string{rows->text(i, 0)}, *token,
                     std::string{rows->text(i, 2)}, rows->integer(i, 3)});
  }
  return marks;
}

result<mark> postgres_store::impl::highest_mark() {
  if (auto ok = need_ledger("highest_mark"); !ok) {
    return ok.error();
  }
  auto rows =
      ask("SELECT coalesce(max(token), 0) FROM lastdoor.marks", reading);
  if (!rows) {
    return rows.error();
  }
  return mark::from_store(rows->integer(0, 0));
}

result<std::int64_t> postgres_store::impl::hand_over(const source_name& from,
                                                     const source_name& to) {
  if (auto ok = need_ledger("hand_over"); !ok) {
    return ok.error();
  }
  if (from == to) {
    return fail(errc::invalid_argument, "a source hands over to another one");
  }
  auto loan = pool_.borrow(deadline());
  if (!loan) {
    return loan.error();
  }
  auto rows = (*loan)->run({"SELECT lastdoor.hand_over($1, $2)", "handing over",
                            effect::writes, deadline()},
                           arguments{}
                               .add(std::string_view{from.str()})
                               .add(std::string_view{to.str()}));
  if (!rows) {
    return rows.error();
  }
  return rows->integer(0, 0);
}

postgres_store::postgres_store(std::unique_ptr<impl> i) noexcept
    : impl_{std::move(i)} {}
postgres_store::postgres_store(postgres_store&&) noexcept = default;
postgres_store& postgres_store::operator=(postgres_store&&) noexcept = default;
postgres_store::~postgres_store() = default;

result<void> postgres_store::claim(const grant& g) { return impl_->claim(g); }

result<receipt> postgres_store::write(const grant& g, const statement& s,
                                      const write_options& o) {
  return impl_->write(g, s, o);
}

result<mark> postgres_store::read_mark(const resource_name& r) {
  return impl_->read_mark(r);
}

result<std::vector<mark_status>> postgres_store::list_marks(
    std::string_view after, std::size_t limit) {
  return impl_->list_marks(after, limit);
}

result<mark> postgres_store::highest_mark() { return impl_->highest_mark(); }

result<std::int64_t> postgres_store::hand_over(const source_name& from,
                                               const source_name& to) {
  return impl_->hand_over(from, to);
}

result<receipt> postgres_store::run(
    const grant& g, const write_options& o,
    const std::function<result<void>(pqxx::transaction_base&)>& body) {
  return impl_->run(g, o, body);
}

result<postgres_store> open_postgres_store(const std::string& url,
                                           postgres_store_options options) {
  auto made = postgres_store::impl::open(url, std::move(options));
  if (!made) {
    return made.error();
  }
  return postgres_store{std::move(*made)};
}

}  // namespace lastdoor

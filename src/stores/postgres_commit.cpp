// Claimed transactions of the Postgres store: how they begin, how they end,
// and how the fate of one is found out whose commit was not answered.
#include <fmt/format.h>

#include <array>
#include <pqxx/nontransaction>
#include <pqxx/result>

#include "drivers/pqxx_transaction.hpp"
#include "stores/postgres_store_impl.hpp"

namespace lastdoor {

namespace {

using namespace std::chrono_literals;
using postgres::about;
using postgres_driver::arguments;
using postgres_driver::connection;
using postgres_driver::effect;

constexpr std::string_view beginning = "beginning a fenced transaction";
constexpr std::string_view committing = "committing";
constexpr std::string_view asking = "asking what became of a commit";
constexpr std::string_view running = "running the caller's function";

// 'unknown' where the xid may mean another transaction: after a failover.
constexpr std::string_view fate_text =
    "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'unknown' "
    "WHEN pg_catalog.left(pg_catalog.pg_walfile_name("
    "pg_catalog.pg_current_wal_lsn()), 8) <> $2 THEN 'unknown' "
    "ELSE coalesce(pg_catalog.pg_xact_status($1::text::xid8), 'unknown') END";

// A session that still waits for a COMMIT which is lost would hold its locks
// until a time limit ends it. Once it is gone, its fate is settled.
constexpr std::string_view end_session_text =
    "SELECT pg_catalog.pg_terminate_backend(a.pid) "
    "FROM pg_catalog.pg_stat_activity a "
    "WHERE a.backend_xid::text::numeric = $1::numeric % 4294967296 "
    "AND a.datname = pg_catalog.current_database()";

// The short form of a claim, for a mark that is the grant's already: takes the
// row lock and nothing else. No row: ask lastdoor.claim.
#define LASTDOOR_HOLD(evidence)                                              \
  "SELECT pg_catalog.pg_current_xact_id()::text, pg_catalog.left("           \
  "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)" evidence \
  " FROM lastdoor.marks AS m WHERE m.resource = $1 AND m.token = $2 "        \
  "AND m.owner = $3 AND m.source = $4 FOR SHARE"
constexpr std::string_view hold_text = LASTDOOR_HOLD("");
constexpr std::string_view hold_with_evidence_text = LASTDOOR_HOLD(
    ", pg_catalog.set_config('lastdoor.evidence', pg_catalog.concat("
    "pg_catalog.pg_current_xact_id(), ' ', m.token, ' ', m.resource), true)");
#undef LASTDOOR_HOLD

// Never looser than what the role or the database has by default.
constexpr std::string_view bound_session_text =
    "SELECT pg_catalog.set_config(s.name, "
    "least(nullif(s.reset_val::bigint, 0), $1)::text, false) "
    "FROM pg_catalog.pg_settings s "
    "WHERE s.name = 'idle_in_transaction_session_timeout'";
constexpr std::string_view unbound_session_text =
    "RESET idle_in_transaction_session_timeout";

// Sessions of our own begin as READ COMMITTED; those of a pooler are not ours.
std::string_view begin_text(isolation level, bool pooled) {
  switch (level) {
    case isolation::repeatable_read:
      return "BEGIN ISOLATION LEVEL REPEATABLE READ";
    case isolation::serializable:
      return "BEGIN ISOLATION LEVEL SERIALIZABLE";
    case isolation::read_committed:
      break;
  }
  return pooled ? "BEGIN ISOLATION LEVEL READ COMMITTED" : "BEGIN";
}

}  // namespace

// Pauses inside a transaction are bounded by the lease. Saying so in each
// transaction costs as much as the claim; so the session is told, and told
// anew only when its limit no longer fits.
result<bool> postgres_store::impl::bound_session(
    connection& db, std::optional<std::int64_t> left_ms) {
  const auto lock_ms =
      std::chrono::ceil<std::chrono::milliseconds>(options_.lock_timeout)
          .count();
  if (db.pooled() || (left_ms && *left_ms < lock_ms)) {
    return false;
  }
  auto& limit_ms = db.memo();
  const bool fits = left_ms ? limit_ms != 0 && limit_ms <= *left_ms &&
                                  *left_ms / 3 <= limit_ms
                            : limit_ms == 0;
  if (fits) {
    return true;
  }
  // Less than what is left, so that the next renewal does not change it.
  const auto limit = left_ms ? std::max<std::int64_t>(1, *left_ms / 10 * 9) : 0;
  auto done =
      left_ms
          ? db.run({bound_session_text, beginning, effect::reads, deadline()},
                   arguments{}.add(limit))
          : db.run(
                {unbound_session_text, beginning, effect::reads, deadline()});
  if (!done) {
    return done.error();
  }
  limit_ms = limit;
  return true;
}

// BEGIN and the short claim, together. False: the mark is not the grant's, or
// not known to be; the transaction has begun all the same.
result<bool> postgres_store::impl::unit::hold(const grant& g, isolation level) {
  const std::array statements{
      postgres_driver::pipelined{begin_text(level, false)},
      postgres_driver::pipelined{
          of_->guards_ ? hold_with_evidence_text : hold_text,
          arguments{}
              .add(std::string_view{g.resource().str()})
              .add(g.token().value())
              .add(std::string_view{g.owner().str()})
              .add(std::string_view{g.source().str()})}};
  open_ = true;
  auto rows = db().together(statements,
                            {"", beginning, effect::reads, of_->deadline()});
  if (!rows) {
    return rows.error();
  }
  if (rows->size() != 2 || rows->back().empty()) {
    return false;
  }
  claim_.xid = rows->back().text(0, 0);
  claim_.timeline = rows->back().text(0, 1);
  return true;
}

// The claim in full, behind BEGIN where that was not sent yet.
result<void> postgres_store::impl::unit::claim_in_full(const grant& g,
                                                       const write_options& o,
                                                       isolation level) {
  std::string sql;
  if (!std::exchange(open_, true)) {
    sql = begin_text(level, db().pooled());
  }
  if (of_->options_.ledger) {
    sql += sql.empty() ? "" : "; ";
    sql += postgres::claim_sql(
        g, {o.sequence, postgres::bound_of(g, of_->options_.time->now())});
  }
  // Nothing of it lasts without a COMMIT: a lost answer leaves no doubt.
  auto rows = db().script({sql, beginning, effect::reads, of_->deadline()});
  if (!rows) {
    return about(rows.error(), g);
  }
  if (!of_->options_.ledger) {
    return {};
  }
  auto claimed = postgres::judge_claim(
      {rows->text(0, 0), rows->integer(0, 1), rows->text(0, 2),
       rows->text(0, 3), rows->text(0, 4)},
      g);
  if (!claimed) {
    return claimed.error();
  }
  claim_ = std::move(*claimed);
  return {};
}

result<postgres_store::impl::unit> postgres_store::impl::unit::begin(
    impl& of, const grant& g, const write_options& o, isolation level) {
  auto loan = of.pool_.borrow(of.deadline());
  if (!loan) {
    return about(loan.error(), g);
  }
  unit tx{of, std::move(*loan)};
  if (of.options_.ledger && !o.sequence) {
    const auto left = postgres::bound_of(g, of.options_.time->now());
    auto bounded = of.bound_session(tx.db(), left);
    if (!bounded) {
      return about(bounded.error(), g);
    }
    if (*bounded) {
      auto held = tx.hold(g, level);
      if (!held) {
        return about(held.error(), g);
      }
      if (*held) {
        return tx;
      }
    }
  }
  if (auto ok = tx.claim_in_full(g, o, level); !ok) {
    return ok.error();
  }
  return tx;
}

postgres_store::impl::unit::~unit() {
  if (loan_) {
    roll_back();
  }
}

void postgres_store::impl::unit::roll_back() noexcept {
  if (!std::exchange(open_, false) || db().raw() == nullptr) {
    return;
  }
  // If this fails the pool closes the connection, and the server rolls back.
  db().script({"ROLLBACK", "rolling back", effect::reads, of_->deadline()})
      .ignore();
}

result<postgres_driver::answer> postgres_store::impl::unit::query(
    const postgres::text_and_slots& what, std::string_view doing,
    const grant& g, const statement& s) {
  auto rows = db().run({what.sql, doing, effect::reads, of_->deadline()},
                       postgres::bind(what, g, s));
  if (!rows) {
    return about(of_->told_by_guard(rows.error()), g);
  }
  return rows;
}

result<void> postgres_store::impl::unit::commit(const grant& g) {
  if (auto ok = of_->still_valid(g); !ok) {
    return ok;
  }
  const auto ended_by_caller = [&](std::string_view how) {
    return about(fail(errc::invalid_argument,
                      fmt::format("the function {}; what it had written until "
                                  "then stands outside of this transaction",
                                  how)),
                 g);
  };
  if (db().raw() == nullptr) {
    return about(fail(errc::unavailable,
                      "the connection was lost before the "
                      "commit; nothing was written"),
                 g);
  }
  switch (PQtransactionStatus(db().raw())) {
    case PQTRANS_INTRANS:
      break;
    case PQTRANS_INERROR:
      return about(fail(errc::precondition_failed,
                        "a statement failed and the function went on as if "
                        "it had not; nothing was written"),
                   g);
    case PQTRANS_IDLE:
      open_ = false;
      return ended_by_caller("ended the transaction itself");
    default:
      return about(fail(errc::unavailable,
                        "the connection was lost before "
                        "the commit; nothing was written"),
                   g);
  }
  auto done =
      db().script({"COMMIT", committing, effect::writes, of_->deadline()});
  open_ = !done && done.error().code() != errc::in_doubt;
  if (!done) {
    return about(done.error(), g);
  }
  if (done->command() != "COMMIT") {
    return about(fail(errc::precondition_failed,
                      "Postgres rolled the transaction back; nothing was "
                      "written"),
                 g);
  }
  return {};
}

postgres_store::impl::fate postgres_store::impl::ask_fate(
    const postgres::claimed& c) {
  const auto give_up_at = deadline();
  const auto bell = options_.time->make_alarm();
  duration pause = 5ms;
  bool ended_session = false;
  while (options_.time->now() < give_up_at) {
    // A connection of its own: those of the pool may have met the same end.
    auto db = connection::open(pool_.where(), {options_.time, {}}, give_up_at);
    while (db && options_.time->now() < give_up_at) {
      const auto with = arguments{}
                            .add(std::string_view{c.xid})
                            .add(std::string_view{c.timeline});
      auto rows = db->run({fate_text, asking, effect::reads, give_up_at}, with);
      if (!rows && rows.code() == errc::invalid_argument) {
        return fate::unknown;  // an xid that this server has not reached
      }
      if (!rows) {
        break;
      }
      const auto status = rows->text(0, 0);
      if (status == "committed") {
        return fate::applied;
      }
      if (status == "aborted") {
        return fate::not_applied;
      }
      if (status != "in progress") {
        return fate::unknown;
      }
      if (!std::exchange(ended_session, true)) {
        // Without the right to do it, the session's time limits will.
        db->run({end_session_text, asking, effect::reads, give_up_at},
                arguments{}.add(std::string_view{c.xid}))
            .ignore();
      }
      (void)bell->wait_until(options_.time->now() + pause);
      pause = std::min<duration>(pause * 2, 200ms);
    }
    (void)bell->wait_until(options_.time->now() + pause);
    pause = std::min<duration>(pause * 2, 200ms);
  }
  return fate::unknown;
}

// The ledger remembers the number of a grant's last write. Claiming it again
// waits for a first attempt that is still under way, so the answer is final.
postgres_store::impl::fate postgres_store::impl::ask_ledger(
    const grant& g, std::int64_t sequence) {
  auto again = unit::begin(*this, g, {sequence}, isolation::read_committed);
  if (!again) {
    return fate::unknown;
  }
  return again->claim().applied ? fate::applied : fate::not_applied;
}

result<receipt> postgres_store::impl::settle(
    error why, const grant& g, const postgres::claimed& c,
    std::optional<std::int64_t> sequence, receipt r) {
  if (why.code() != errc::in_doubt) {
    return why;
  }
  auto found = c.xid.empty() ? fate::unknown : ask_fate(c);
  if (found == fate::unknown && sequence) {
    found = ask_ledger(g, *sequence);
  }
  switch (found) {
    case fate::applied:
      return r;
    case fate::not_applied:
      return about(fail(errc::unavailable,
                        fmt::format("{}; the server says that it did not "
                                    "take effect",
                                    why.text()))
                       .backend(why.backend()),
                   g);
    case fate::unknown:
      break;
  }
  return why;
}

result<receipt> postgres_store::impl::run(
    const grant& g, const write_options& o,
    const std::function<result<void>(pqxx::transaction_base&)>& body) {
  if (auto ok = need_ledger("transaction"); !ok) {
    return ok.error();
  }
  if (o.sequence && *o.sequence < 1) {
    return fail(errc::invalid_argument, "writes are numbered from 1");
  }
  if (auto ok = still_valid(g); !ok) {
    return ok.error();
  }
  std::optional<postgres::claimed> claim;
  auto done = [&]() -> result<receipt> {
    auto tx = unit::begin(*this, g, o, options_.isolation);
    if (!tx) {
      return tx.error();
    }
    if (tx->claim().applied) {
      return receipt{0, true, {}};
    }
    claim = tx->claim();
    if (auto ok = call(*tx, g, body); !ok) {
      return ok.error();
    }
    if (auto ok = tx->commit(g); !ok) {
      return ok.error();
    }
    return receipt{};
  }();
  if (done || !claim) {
    return done;
  }
  return settle(done.error(), g, *claim, o.sequence, {});
}

// A guard that was installed after the store was opened asks for evidence,
// which transactions bring along from then on. This one changed nothing.
error postgres_store::impl::told_by_guard(error e) {
  if (e.backend() == "LD002" && !guards_.exchange(true)) {
    return fail(errc::unavailable,
                e.text() + "; the guard is new to this store, repeat the call")
        .backend(e.backend());
  }
  return postgres::with_mark_of_guard(std::move(e));
}

result<void> postgres_store::impl::call(
    unit& tx, const grant& g,
    const std::function<result<void>(pqxx::transaction_base&)>& body) {
  postgres_driver::pqxx_loan loan{tx.db()};
  try {
    postgres_driver::lent_transaction theirs{loan.get()};
    auto said = body(theirs);
    if (said && theirs.aborted()) {
      return about(fail(errc::precondition_failed,
                        "the transaction was aborted inside the function, by "
                        "abort() or by a statement that failed; nothing was "
                        "written"),
                   g);
    }
    return said;
  } catch (...) {
    auto e = postgres_driver::translate_current_exception(running, false);
    return about(told_by_guard(std::move(e)), g);
  }
}

result<void> postgres_store::claim_in(pqxx::transaction_base& tx,
                                      const grant& g) {
  if (dynamic_cast<pqxx::nontransaction*>(&tx) != nullptr) {
    return about(fail(errc::invalid_argument,
                      "a claim holds for a transaction, and a nontransaction "
                      "is none"),
                 g);
  }
  const auto now = boot_clock()->now();
  if (!g.valid_at(now)) {
    return about(fail(errc::lease_lost, "the validity of the grant is over"),
                 g);
  }
  try {
    const auto rows = tx.exec(
        postgres::claim_sql(g, {std::nullopt, postgres::bound_of(g, now)}));
    const auto first = rows.at(0);
    auto claimed = postgres::judge_claim(
        {first[0].c_str(), first[1].is_null() ? 0 : first[1].as<std::int64_t>(),
         first[2].c_str(), first[3].c_str(), first[4].c_str()},
        g);
    return claimed ? result<void>{} : result<void>{claimed.error()};
  } catch (...) {
    auto e = postgres_driver::translate_current_exception(
        "claiming in the caller's transaction", false);
    return about(std::move(e), g);
  }
}

}  // namespace lastdoor

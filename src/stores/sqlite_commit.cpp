// Claimed transactions of the SQLite store, and what becomes of a commit
// whose answer was lost.
#include <fmt/format.h>

#include "sqlite_store_impl.hpp"

namespace lastdoor {

namespace {

using sqlite_driver::connection;
using sqlite_driver::open_mode;

constexpr std::string_view settling = "asking what became of the commit";

// Something that is always written. Its commit takes the place that the lost
// one had in the journal, so "not applied" cannot turn into "applied" when
// the machine goes down later.
constexpr const char* finality =
    "INSERT INTO main.lastdoor_replaced (table_name, fence) VALUES ('', 0);"
    "DELETE FROM main.lastdoor_replaced WHERE table_name = ''";

}  // namespace

// The caller's function has the connection. When it is done, with a result or
// an exception, no cursor of its own stays open: one would keep a snapshot
// alive behind the commit, and an unfinished write would make it fail.
class sqlite_store::impl::caller_scope {
 public:
  explicit caller_scope(impl& of) noexcept : of_{of} {
    of_.speaker_ = speaker::caller;
  }
  ~caller_scope() {
    of_.speaker_ = speaker::store;
    of_.close_cursors();
  }
  caller_scope(const caller_scope&) = delete;
  caller_scope& operator=(const caller_scope&) = delete;

 private:
  impl& of_;
};

void sqlite_store::impl::close_cursors() noexcept {
  for (auto* s = sqlite3_next_stmt(db_.raw(), nullptr); s != nullptr;
       s = sqlite3_next_stmt(db_.raw(), s)) {
    if (sqlite3_stmt_busy(s) != 0) {
      sqlite3_reset(s);
    }
  }
}

// What a handle that was kept has left open since the last call: the next
// statement would become part of it, and be told as applied when it is not.
// True when there was something. While nobody speaks nothing is committed, so
// what ends here is undone.
bool sqlite_store::impl::take_back_leftovers() noexcept {
  if (!db_.in_transaction() &&
      sqlite3_txn_state(db_.raw(), nullptr) == SQLITE_TXN_NONE) {
    return false;
  }
  speaker_ = speaker::nobody;
  close_cursors();
  speaker_ = speaker::store;
  if (db_.in_transaction()) {
    db_.exec("ROLLBACK", "rolling back").ignore();
  }
  return true;
}

result<void> sqlite_store::impl::commit(transaction& tx, const grant& g) {
  if (auto ok = still_valid(g); !ok) {
    return ok;
  }
  if (faults && faults(sqlite::fault_point::before_commit)) {
    tx.rollback();
    return fail(errc::in_doubt, "the answer to the commit was lost");
  }
  auto ok = tx.commit("committing");
  if (ok && faults && faults(sqlite::fault_point::after_commit)) {
    return fail(errc::in_doubt, "the answer to the commit was lost");
  }
  return ok;
}

result<sqlite_store::impl::fate> sqlite_store::impl::ask_fate(
    const grant& g, std::int64_t sequence) {
  // A connection of its own: the old one may be what is broken.
  auto db = connection::open(path_, open_mode::existing);
  if (!db) {
    return db.error();
  }
  db->busy_timeout(options_.busy_timeout);
  auto tx = transaction::begin_immediate(*db, settling);
  if (!tx) {
    return tx.error();
  }
  auto read = db->prepare(
      "SELECT token, owner, last_sequence FROM main.lastdoor_marks "
      "WHERE resource = ?1",
      settling);
  if (!read) {
    return read.error();
  }
  auto there = read->bind_static(1, g.resource().str()).step(settling);
  if (!there) {
    return there.error();
  }
  if (*there && read->integer(0) > g.token().value()) {
    return fate::unknown;  // a newer grant has taken the memory over
  }
  if (*there && read->integer(0) == g.token().value() &&
      read->view(1) == g.owner().str() && read->integer(2) >= sequence) {
    return fate::applied;
  }
  read->reset();
  if (auto ok = db->exec(finality, settling); !ok) {
    return ok.error();
  }
  if (auto ok = tx->commit(settling); !ok) {
    return ok.error();
  }
  return fate::not_applied;
}

result<receipt> sqlite_store::impl::settle(error why, const grant& g,
                                           std::optional<std::int64_t> sequence,
                                           receipt r) {
  why = sqlite::about(std::move(why), g);
  if (why.code() != errc::in_doubt || !sequence) {
    return why;
  }
  auto found = ask_fate(g, *sequence);
  if (!found || *found == fate::unknown) {
    return why;
  }
  if (*found == fate::applied) {
    return r;
  }
  return sqlite::about(
      fail(errc::unavailable, "the commit failed, and nothing was applied"), g);
}

result<receipt> sqlite_store::impl::finish(transaction& tx, const grant& g,
                                           const write_options& o,
                                           bool presented, receipt r) {
  if (presented) {
    if (auto ok = ledger_.withdraw(); !ok) {
      return sqlite::about(ok.error(), g);
    }
  }
  if (o.sequence) {
    if (auto ok = ledger_.remember_sequence(g, *o.sequence); !ok) {
      return ok.error();
    }
  }
  if (auto ok = commit(tx, g); !ok) {
    return settle(ok.error(), g, o.sequence, std::move(r));
  }
  return r;
}

result<void> sqlite_store::impl::call(
    const std::function<result<void>(sqlite3*)>& body, const grant& g) {
  std::optional<error> refused;
  rolled_back_ = false;
  auto said = [&] {
    const caller_scope theirs{*this};
    auto answer = body(db_.raw());
    if (!answer) {
      // Whatever the caller made of it, a guard's refusal is told as such.
      refused = sqlite::guard_refusal(db_.raw());
    }
    return answer;
  }();
  if (refused) {
    return sqlite::about(*refused, g);
  }
  if (!said) {
    return said;
  }
  // A transaction that is open now need not be the one that claimed.
  if (rolled_back_ || !db_.in_transaction()) {
    return sqlite::about(
        fail(errc::unavailable,
             "SQLite rolled the transaction back while the function ran (a "
             "full disk, an OR ROLLBACK); nothing was committed"),
        g);
  }
  return ledger_.confirm(g);
}

result<receipt> sqlite_store::impl::run(
    const grant& g, const write_options& o,
    const std::function<result<void>(sqlite3*)>& body) {
  if (auto ok = need_ledger("transaction"); !ok) {
    return ok.error();
  }
  if (o.sequence && *o.sequence < 1) {
    return fail(errc::invalid_argument, "writes are numbered from 1");
  }
  const turn mine{*this};
  if (mine.refused()) {
    return *mine.refused();
  }
  if (auto ok = ready_for(g); !ok) {
    return ok.error();
  }
  auto tx = transaction::begin_immediate(db_, "beginning a transaction");
  if (!tx) {
    return sqlite::about(tx.error(), g);
  }
  auto claimed = ledger_.claim(g);
  if (!claimed) {
    return claimed.error();
  }
  if (o.sequence && *o.sequence <= claimed->last_sequence) {
    return receipt{0, true, {}};
  }
  auto guarded = ledger_.guarded();
  if (!guarded) {
    return sqlite::about(guarded.error(), g);
  }
  if (*guarded) {
    if (auto ok = ledger_.present(g); !ok) {
      return ok.error();
    }
  }
  if (auto ok = call(body, g); !ok) {
    return ok.error();
  }
  return finish(*tx, g, o, *guarded, {});
}

namespace {

// A claim on a connection of the caller's: what SQLite says there may come
// from what the caller did before.
error in_callers_transaction(error e) {
  if (e.code() != errc::unavailable) {
    return e;
  }
  error hinted{errc::unavailable,
               e.text() +
                   "; repeat the whole transaction, and begin it with BEGIN "
                   "IMMEDIATE, so that it waits instead of failing half way"};
  hinted.about(e.resource()).presented(e.presented()).backend(e.backend());
  return hinted;
}

result<void> locally_valid(const grant& g) {
  if (g.valid_at(boot_clock()->now())) {
    return {};
  }
  return sqlite::about(
      fail(errc::lease_lost, "the validity of the grant is over"), g);
}

}  // namespace

result<void> sqlite_store::claim_in(sqlite3* db, const grant& g) {
  if (db == nullptr || sqlite3_get_autocommit(db) != 0) {
    return sqlite::about(fail(errc::invalid_argument,
                              "claim_in needs a transaction that has begun"),
                         g);
  }
  if (auto ok = locally_valid(g); !ok) {
    return ok;
  }
  auto theirs = connection::borrow(db);
  sqlite::ledger ledger{theirs};
  auto claimed = ledger.claim(g);
  if (!claimed) {
    return in_callers_transaction(claimed.error());
  }
  auto guarded = ledger.guarded();
  if (!guarded) {
    return in_callers_transaction(sqlite::about(guarded.error(), g));
  }
  if (*guarded) {
    if (auto ok = ledger.present(g); !ok) {
      return in_callers_transaction(ok.error());
    }
  }
  return {};
}

result<void> sqlite_store::finish_in(sqlite3* db, const grant& g) {
  if (db == nullptr || sqlite3_get_autocommit(db) != 0) {
    return sqlite::about(
        fail(errc::invalid_argument,
             "finish_in needs the transaction that claimed; if SQLite rolled "
             "it back, begin again"),
        g);
  }
  if (auto ok = locally_valid(g); !ok) {
    return ok;
  }
  auto theirs = connection::borrow(db);
  sqlite::ledger ledger{theirs};
  // The claim once more: a ROLLBACK TO of the caller's may have taken it back,
  // and what was written since is part of this very transaction.
  if (auto mine = ledger.claim(g); !mine) {
    return in_callers_transaction(mine.error());
  }
  return ledger.withdraw();
}

}  // namespace lastdoor

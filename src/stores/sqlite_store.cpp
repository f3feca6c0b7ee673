#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "drivers/forks.hpp"
#include "sqlite_store_impl.hpp"
#include "stores/sqlite_migrate.hpp"

namespace lastdoor {

namespace {

using sqlite_driver::connection;
using sqlite_driver::open_mode;
using sqlite_driver::scoped_reset;

constexpr std::string_view reading = "reading the ledger";
constexpr std::string_view handing = "handing over";

}  // namespace

sqlite_store::impl::impl(std::string path, sqlite_store_options options,
                         connection db)
    : path_{std::move(path)},
      options_{std::move(options)},
      rule_{options_.rule.value_or(options_.ledger
                                       ? write_rule::many_per_grant
                                       : write_rule::once_per_grant)},
      db_{std::move(db)},
      ledger_{db_},
      forks_{forks()} {}

sqlite_store::impl::~impl() = default;

result<std::unique_ptr<sqlite_store::impl>> sqlite_store::impl::open(
    const std::string& path, sqlite_store_options options) {
  if (!options.time || options.busy_timeout < duration::zero()) {
    return fail(errc::invalid_argument,
                "a store needs a clock and a busy timeout of 0 or more");
  }
  auto db = connection::open(path, open_mode::existing);
  if (!db) {
    return db.error();
  }
  std::unique_ptr<impl> made{
      new impl{path, std::move(options), std::move(*db)}};
  if (auto ok = made->prepare_connection(); !ok) {
    return ok.error();
  }
  return made;
}

result<void> sqlite_store::impl::prepare_connection() {
  if (options_.ledger) {
    if (auto ok = sqlite::check_schema(db_, sqlite::ledger_version); !ok) {
      return ok;
    }
  }
  if (options_.on_open) {
    if (auto ok = options_.on_open(db_.raw()); !ok) {
      return ok;
    }
  }
  if (db_.in_transaction() ||
      sqlite3_txn_state(db_.raw(), nullptr) != SQLITE_TXN_NONE) {
    return fail(errc::misconfigured,
                "on_open left a transaction or a cursor open on the store's "
                "connection; nothing could be committed there");
  }
  install_hooks();
  return {};
}

sqlite_store::impl::turn::turn(impl& of) : of_{of} {
  if (forks() != of.forks_) {
    refused_ = fail(errc::invalid_argument,
                    "this store was opened before fork(); open a new one");
    return;
  }
  const auto me = std::this_thread::get_id();
  if (of.inside_.load(std::memory_order_relaxed) == me) {
    refused_ = fail(errc::invalid_argument,
                    "the function that runs in a transaction must not call "
                    "the store; it has the connection");
    return;
  }
  of.mutex_.lock();
  holds_ = true;
  of.inside_.store(me, std::memory_order_relaxed);
  of.speaker_ = speaker::store;
  if (of.take_back_leftovers()) {
    refused_ = fail(errc::unavailable,
                    "a transaction was left open on the store's connection by "
                    "a handle that was kept; it was taken back, and nothing "
                    "else was done");
  } else if (of.file_is_gone()) {
    refused_ = fail(errc::misconfigured, sqlite_driver::moved_text);
  }
}

// Two system calls would be a third of a write. Whoever replaces a file that
// is in use races with the next write anyway, however often one looks.
bool sqlite_store::impl::file_is_gone() noexcept {
  const auto now = options_.time->now();
  if (now < look_again_at_) {
    return false;
  }
  if (db_.moved()) {
    return true;
  }
  look_again_at_ = now + look_pause;
  return false;
}

sqlite_store::impl::turn::~turn() {
  if (!holds_) {
    return;
  }
  of_.speaker_ = speaker::nobody;
  of_.inside_.store(std::thread::id{}, std::memory_order_relaxed);
  of_.mutex_.unlock();
}

result<void> sqlite_store::impl::need_ledger(std::string_view verb) const {
  if (options_.ledger) {
    return {};
  }
  return fail(errc::invalid_argument,
              fmt::format("{} needs the ledger, and this store was opened "
                          "without it",
                          verb));
}

result<void> sqlite_store::impl::still_valid(const grant& g) const {
  if (g.valid_at(options_.time->now())) {
    return {};
  }
  return sqlite::about(
      fail(errc::lease_lost, "the validity of the grant is over"), g);
}

void sqlite_store::impl::wait_at_most(duration d) noexcept {
  if (d != waits_) {
    db_.busy_timeout(d);
    waits_ = d;
  }
}

result<void> sqlite_store::impl::ready_for(const grant& g) {
  const auto now = options_.time->now();
  const auto until = g.valid_until();
  if (now >= until) {
    return still_valid(g);
  }
  // `until` may be as far away as a time can be.
  const bool far = until > now + options_.busy_timeout;
  wait_at_most(far ? options_.busy_timeout : until - now);
  return {};
}

result<void> sqlite_store::impl::claim(const grant& g) {
  if (auto ok = need_ledger("claim"); !ok) {
    return ok;
  }
  const turn mine{*this};
  if (mine.refused()) {
    return *mine.refused();
  }
  if (auto ok = ready_for(g); !ok) {
    return ok;
  }
  auto tx = transaction::begin_immediate(db_, "claiming the token");
  if (!tx) {
    return sqlite::about(tx.error(), g);
  }
  auto claimed = ledger_.claim(g);
  if (!claimed) {
    return claimed.error();
  }
  if (!claimed->raised) {
    return {};
  }
  auto ok = commit(*tx, g);
  if (!ok) {
    // A mark that is the grant's says it all; no number is needed.
    auto settled = settle(ok.error(), g, 0, {});
    if (!settled) {
      return settled.error();
    }
  }
  return {};
}

result<mark> sqlite_store::impl::read_mark(const resource_name& r) {
  if (auto ok = need_ledger("read_mark"); !ok) {
    return ok.error();
  }
  const turn mine{*this};
  if (mine.refused()) {
    return *mine.refused();
  }
  wait_at_most(options_.busy_timeout);
  auto seen = ledger_.mark_of(r.str());
  if (!seen) {
    return error{seen.error()}.about(r.str());
  }
  return seen;
}

result<std::vector<mark_status>> sqlite_store::impl::list_marks(
    std::string_view after, std::size_t limit) {
  if (auto ok = need_ledger("list_marks"); !ok) {
    return ok.error();
  }
  const turn mine{*this};
  if (mine.refused()) {
    return *mine.refused();
  }
  wait_at_most(options_.busy_timeout);
  auto page = db_.cached(
      "SELECT resource, token, source, last_sequence FROM main.lastdoor_marks "
      "WHERE resource > ?1 ORDER BY resource LIMIT ?2",
      reading);
  if (!page) {
    return page.error();
  }
  const scoped_reset at_end{**page};
  constexpr std::size_t most = std::numeric_limits<std::int64_t>::max();
  (*page)->bind(1, after).bind(
      2, static_cast<std::int64_t>(std::min(limit, most)));
  std::vector<mark_status> marks;
  for (;;) {
    auto more = (*page)->step(reading);
    if (!more) {
      return more.error();
    }
    if (!*more) {
      return marks;
    }
    auto token = sqlite::stored_mark(**page, 1);
    if (!token) {
      return error{token.error()}.about((*page)->view(0));
    }
    marks.push_back(
        {(*page)->text(0), *token, (*page)->text(2), (*page)->integer(3)});
  }
}

result<mark> sqlite_store::impl::highest_mark() {
  if (auto ok = need_ledger("highest_mark"); !ok) {
    return ok.error();
  }
  const turn mine{*this};
  if (mine.refused()) {
    return *mine.refused();
  }
  wait_at_most(options_.busy_timeout);
  auto highest = db_.cached(
      "SELECT coalesce(max(token), 0) FROM main.lastdoor_marks", reading);
  if (!highest) {
    return highest.error();
  }
  const scoped_reset at_end{**highest};
  auto there = (*highest)->step(reading);
  if (!there) {
    return there.error();
  }
  return sqlite::stored_mark(**highest, 0);
}

namespace {

// The source that `name` was handed over to; empty when it was not.
result<std::string> successor_of(connection& db, const source_name& name) {
  auto find = db.prepare(
      "SELECT successor FROM main.lastdoor_retired_sources WHERE source = ?1",
      handing);
  if (!find) {
    return find.error();
  }
  auto there = find->bind_static(1, name.str()).step(handing);
  if (!there) {
    return there.error();
  }
  return *there ? find->text(0) : std::string{};
}

result<std::int64_t> move_marks(connection& db, const source_name& from,
                                const source_name& to) {
  // In this order: a mark changes its source only once that is retired.
  for (const char* sql :
       {"INSERT INTO main.lastdoor_retired_sources (source, successor) "
        "VALUES (?1, ?2)",
        "UPDATE main.lastdoor_marks SET source = ?2 WHERE source = ?1"}) {
    auto step = db.prepare(sql, handing);
    if (!step) {
      return step.error();
    }
    step->bind_static(1, from.str()).bind_static(2, to.str());
    if (auto ok = step->run(handing); !ok) {
      return ok.error();
    }
  }
  return sqlite3_changes64(db.raw());
}

}  // namespace

result<std::int64_t> sqlite_store::impl::hand_over(const source_name& from,
                                                   const source_name& to) {
  if (auto ok = need_ledger("hand_over"); !ok) {
    return ok.error();
  }
  if (from == to) {
    return fail(errc::invalid_argument, "a source hands over to another one");
  }
  const turn mine{*this};
  if (mine.refused()) {
    return *mine.refused();
  }
  wait_at_most(options_.busy_timeout);
  auto tx = transaction::begin_immediate(db_, handing);
  if (!tx) {
    return tx.error();
  }
  auto gone = successor_of(db_, to);
  auto done = successor_of(db_, from);
  if (!gone || !done) {
    return gone ? done.error() : gone.error();
  }
  if (!gone->empty()) {
    return fail(errc::invalid_argument,
                fmt::format("'{}' was itself handed over, to '{}'; a retired "
                            "name never comes back",
                            to.str(), *gone));
  }
  if (*done == to.str()) {
    return std::int64_t{0};  // a repeat
  }
  if (!done->empty()) {
    return fail(
        errc::wrong_source,
        fmt::format("'{}' was handed over to '{}' already", from.str(), *done));
  }
  auto moved = move_marks(db_, from, to);
  if (!moved) {
    return moved.error();
  }
  if (auto ok = tx->commit(handing); !ok) {
    return ok.error();
  }
  return *moved;
}

sqlite_store::sqlite_store(std::unique_ptr<impl> i) noexcept
    : impl_{std::move(i)} {}
sqlite_store::sqlite_store(sqlite_store&&) noexcept = default;
sqlite_store& sqlite_store::operator=(sqlite_store&&) noexcept = default;
sqlite_store::~sqlite_store() = default;

result<void> sqlite_store::claim(const grant& g) { return impl_->claim(g); }

result<receipt> sqlite_store::write(const grant& g, const statement& s,
                                    const write_options& o) {
  return impl_->write(g, s, o);
}

result<mark> sqlite_store::read_mark(const resource_name& r) {
  return impl_->read_mark(r);
}

result<std::vector<mark_status>> sqlite_store::list_marks(
    std::string_view after, std::size_t limit) {
  return impl_->list_marks(after, limit);
}

result<mark> sqlite_store::highest_mark() { return impl_->highest_mark(); }

result<std::int64_t> sqlite_store::hand_over(const source_name& from,
                                             const source_name& to) {
  return impl_->hand_over(from, to);
}

result<receipt> sqlite_store::run(
    const grant& g, const write_options& o,
    const std::function<result<void>(sqlite3*)>& body) {
  return impl_->run(g, o, body);
}

result<sqlite_store> open_sqlite_store(const std::string& path,
                                       sqlite_store_options options) {
  auto made = sqlite_store::impl::open(path, std::move(options));
  if (!made) {
    return made.error();
  }
  return sqlite_store{std::move(*made)};
}

}  // namespace lastdoor

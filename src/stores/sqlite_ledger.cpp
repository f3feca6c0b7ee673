#include "sqlite_ledger.hpp"

#include <fmt/format.h>

namespace lastdoor::sqlite {

namespace {

using sqlite_driver::statement;

constexpr std::string_view claiming = "claiming the token";
constexpr std::string_view presenting = "presenting the token to the guards";

error other_owner(const grant& g) {
  return about(fail(errc::stale_token,
                    "the store has accepted this very token from another "
                    "owner, and a token has one"),
               g)
      .seen(g.token().value());
}

error other_source(const grant& g, std::string_view bound_to) {
  return about(fail(errc::wrong_source,
                    fmt::format("the mark is of source '{}', the grant of "
                                "'{}'; tokens of two sources cannot be "
                                "compared, hand over first",
                                bound_to, g.source().str())),
               g);
}

}  // namespace

error about(error e, const grant& g) {
  e.about(g.resource().str()).presented(g.token().value());
  return e;
}

result<mark> stored_mark(const statement& row, int column) {
  if (!row.is_integer(column)) {
    return fail(errc::damaged, fmt::format("the mark is {}, which is no token",
                                           row.any(column).describe()));
  }
  return mark::from_store(row.integer(column));
}

std::optional<error> guard_refusal(sqlite3* db) {
  constexpr std::string_view prefix = "lastdoor: ";
  if (sqlite3_extended_errcode(db) != SQLITE_CONSTRAINT_TRIGGER) {
    return std::nullopt;
  }
  std::string_view text = sqlite3_errmsg(db);
  if (!text.starts_with(prefix)) {
    return std::nullopt;
  }
  text.remove_prefix(prefix.size());
  const auto colon = text.find(": ");
  if (colon == std::string_view::npos) {
    return std::nullopt;
  }
  for (auto n = static_cast<int>(errc::stale_token);
       n <= static_cast<int>(errc::internal); ++n) {
    const auto code = static_cast<errc>(n);
    if (name_of(code) == text.substr(0, colon)) {
      return fail(code, std::string{text.substr(colon + 2)})
          .backend("sqlite guard");
    }
  }
  return std::nullopt;
}

result<ledger::prepared*> ledger::ready(prepared& s, std::string_view sql) {
  if (!s) {
    auto fresh = db_->prepare(sql, claiming);
    if (!fresh) {
      return fresh.error();
    }
    s = std::move(*fresh);
  }
  return &s;
}

result<claimed> ledger::claim(const grant& g) {
  auto read = ready(read_,
                    "SELECT token, owner, source, last_sequence "
                    "FROM main.lastdoor_marks WHERE resource = ?1");
  if (!read) {
    return about(read.error(), g);
  }
  statement& row = **read;
  const sqlite_driver::scoped_reset at_end{row};
  auto there = row.bind_static(1, g.resource().str()).step(claiming);
  if (!there) {
    return about(there.error(), g);
  }
  if (!*there) {
    row.reset();
    return raise(g, false);
  }
  if (row.view(2) != g.source().str()) {
    return other_source(g, row.view(2));
  }
  const auto stored = stored_mark(row, 0);
  if (!stored) {
    return about(stored.error(), g);
  }
  const std::int64_t seen = stored->value();
  if (seen > g.token().value()) {
    return about(fail(errc::stale_token, "the store has seen a newer token"), g)
        .seen(seen);
  }
  if (seen < g.token().value()) {
    row.reset();
    return raise(g, true);
  }
  if (row.view(1) != g.owner().str()) {
    return other_owner(g);
  }
  return claimed{false, row.integer(3)};
}

result<void> ledger::confirm(const grant& g) {
  auto mine = claim(g);
  if (!mine) {
    return mine.error();
  }
  if (mine->raised) {
    return about(fail(errc::unavailable,
                      "the claim was taken back while the function ran; "
                      "nothing was committed"),
                 g);
  }
  return {};
}

result<void> ledger::refuse_retired(const grant& g) {
  auto find = db_->prepare(
      "SELECT successor FROM main.lastdoor_retired_sources "
      "WHERE source = ?1",
      claiming);
  if (!find) {
    return about(find.error(), g);
  }
  auto there = find->bind_static(1, g.source().str()).step(claiming);
  if (!there) {
    return about(there.error(), g);
  }
  if (*there) {
    return about(fail(errc::wrong_source,
                      fmt::format("the source '{}' was handed over to '{}'",
                                  g.source().str(), find->view(0))),
                 g);
  }
  return {};
}

result<claimed> ledger::raise(const grant& g, bool present) {
  if (auto ok = refuse_retired(g); !ok) {
    return ok.error();
  }
  auto write = db_->prepare(
      present ? "UPDATE main.lastdoor_marks SET token = ?2, owner = ?3, "
                "source = ?4, last_sequence = 0 WHERE resource = ?1"
              : "INSERT INTO main.lastdoor_marks "
                "(resource, token, owner, source) VALUES (?1, ?2, ?3, ?4)",
      claiming);
  if (!write) {
    return about(write.error(), g);
  }
  write->bind_static(1, g.resource().str())
      .bind(2, g.token().value())
      .bind_static(3, g.owner().str())
      .bind_static(4, g.source().str());
  if (auto ok = write->run(claiming); !ok) {
    auto refused = guard_refusal(db_->raw());
    return about(refused ? *refused : ok.error(), g);
  }
  return claimed{true, 0};
}

result<bool> ledger::guarded() {
  // SQLite prepares a statement anew when the schema is no longer the one it
  // was made for. `read_` has run in this transaction, so its count is up to
  // date, and the schema cannot change under us any more.
  const int now =
      sqlite3_stmt_status(read_.raw(), SQLITE_STMTSTATUS_REPREPARE, 0);
  if (now == guarded_at_) {
    return guarded_;
  }
  auto find = db_->prepare(
      "SELECT 1 FROM main.sqlite_schema WHERE type = 'trigger' "
      "AND name GLOB 'lastdoor_guard_*' LIMIT 1",
      presenting);
  if (!find) {
    return find.error();
  }
  auto there = find->step(presenting);
  if (!there) {
    return there.error();
  }
  guarded_ = *there;
  guarded_at_ = now;
  return guarded_;
}

result<void> ledger::present(const grant& g) {
  auto insert = ready(present_,
                      "INSERT INTO main.lastdoor_presented "
                      "(resource, token, owner, source) "
                      "VALUES (?1, ?2, ?3, ?4)");
  if (!insert) {
    return about(insert.error(), g);
  }
  (*insert)
      ->bind_static(1, g.resource().str())
      .bind(2, g.token().value())
      .bind_static(3, g.owner().str())
      .bind_static(4, g.source().str());
  if (auto ok = (*insert)->run(presenting); !ok) {
    return about(ok.error(), g);
  }
  return {};
}

result<void> ledger::withdraw() {
  auto remove = ready(withdraw_, "DELETE FROM main.lastdoor_presented");
  if (!remove) {
    return remove.error();
  }
  return (*remove)->run(presenting);
}

result<void> ledger::remember_sequence(const grant& g, std::int64_t number) {
  auto update = ready(sequence_,
                      "UPDATE main.lastdoor_marks SET last_sequence = ?2 "
                      "WHERE resource = ?1 AND token = ?3 AND owner = ?4");
  if (!update) {
    return about(update.error(), g);
  }
  if (auto ok = (*update)
                    ->bind_static(1, g.resource().str())
                    .bind(2, number)
                    .bind(3, g.token().value())
                    .bind_static(4, g.owner().str())
                    .run("remembering the number of the write");
      !ok) {
    return about(ok.error(), g);
  }
  if ((*update)->changes() != 1) {
    return about(fail(errc::stale_token,
                      "the mark is no longer the one that was claimed"),
                 g);
  }
  return {};
}

result<mark> ledger::mark_of(std::string_view resource) {
  auto read =
      db_->prepare("SELECT token FROM main.lastdoor_marks WHERE resource = ?1",
                   "reading the mark");
  if (!read) {
    return read.error();
  }
  auto there = read->bind(1, resource).step("reading the mark");
  if (!there) {
    return there.error();
  }
  return *there ? stored_mark(*read, 0) : mark{};
}

}  // namespace lastdoor::sqlite

// Who may do what on the store's connection.
//
// The caller's function gets the connection itself, so that any SQL and any
// library on top of SQLite can run in it. These hooks keep it inside the
// transaction that has claimed: it can neither end it, nor write to lastdoor's
// own tables, nor commit anything once SQLite has ended it by itself: a
// rollback is noted, whatever is begun after it. Between calls nothing may be
// prepared or committed at all, so a handle that was kept does no harm; and a
// transaction that it left open is taken back before the next call.
#include <algorithm>
#include <array>
#include <string_view>

#include "sqlite_store_impl.hpp"
#include "stores/sqlite_table.hpp"

namespace lastdoor {

namespace {

bool own(const char* name) noexcept {
  return name != nullptr && std::string_view{name}.size() >= 9 &&
         sqlite3_strnicmp(name, "lastdoor_", 9) == 0;
}

// PRAGMAs that take an argument and change nothing that matters here. The
// others could loosen constraints, leave the file unsynced or end a mode for
// the calls to come.
bool harmless_pragma(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 13> known{
      "application_id",    "collation_list",   "defer_foreign_keys",
      "foreign_key_check", "foreign_key_list", "index_info",
      "index_list",        "index_xinfo",      "integrity_check",
      "quick_check",       "table_info",       "table_list",
      "table_xinfo"};
  return std::find(known.begin(), known.end(), name) != known.end();
}

bool writes_rows(int action) noexcept {
  return action == SQLITE_INSERT || action == SQLITE_UPDATE ||
         action == SQLITE_DELETE;
}

// Everything else that names objects is a change of the schema.
bool only_reads(int action) noexcept {
  return action == SQLITE_READ || action == SQLITE_SELECT ||
         action == SQLITE_FUNCTION || action == SQLITE_RECURSIVE;
}

int for_the_caller(sqlite3* db, int action, const char* a, const char* b,
                   const char* trigger) noexcept {
  if (only_reads(action)) {
    return SQLITE_OK;
  }
  switch (action) {
    case SQLITE_SAVEPOINT:  // outside of a transaction it begins one
      return sqlite3_get_autocommit(db) == 0 ? SQLITE_OK : SQLITE_DENY;
    case SQLITE_TRANSACTION:
    case SQLITE_ATTACH:
    case SQLITE_DETACH:
      return SQLITE_DENY;
    case SQLITE_PRAGMA:
      return b == nullptr || (a != nullptr && harmless_pragma(a)) ? SQLITE_OK
                                                                  : SQLITE_DENY;
    default:
      break;
  }
  if (writes_rows(action)) {
    // A guard of lastdoor's may, on the caller's behalf.
    return own(a) && !own(trigger) ? SQLITE_DENY : SQLITE_OK;
  }
  return own(a) || own(b) ? SQLITE_DENY : SQLITE_OK;
}

}  // namespace

int sqlite_store::impl::authorize(void* self, int action, const char* a,
                                  const char* b, const char* /*schema*/,
                                  const char* trigger) noexcept {
  auto& of = *static_cast<impl*>(self);
  switch (of.speaker_) {
    case speaker::store:
      of.saw_trigger_ = of.saw_trigger_ || trigger != nullptr;
      return SQLITE_OK;
    case speaker::caller:
      return for_the_caller(of.db_.raw(), action, a, b, trigger);
    case speaker::fast:
      // The schema changed: what was found out is void. A function that is
      // denied would not be told as SQLITE_AUTH; the table will be.
      return action == SQLITE_FUNCTION ? SQLITE_OK : SQLITE_DENY;
    case speaker::nobody:  // a handle that outlived its call
      break;
  }
  return SQLITE_DENY;
}

int sqlite_store::impl::may_commit(void* self) noexcept {
  const auto who = static_cast<impl*>(self)->speaker_;
  return who == speaker::store || who == speaker::fast ? 0 : 1;
}

void sqlite_store::impl::note_rollback(void* self) noexcept {
  static_cast<impl*>(self)->rolled_back_ = true;
}

void sqlite_store::impl::install_hooks() noexcept {
  // Otherwise a plan may hang on the values that are bound, and a change of
  // them would look like a change of the schema.
  sqlite3_db_config(db_.raw(), SQLITE_DBCONFIG_ENABLE_QPSG, 1, nullptr);
  sqlite3_set_authorizer(db_.raw(), &authorize, this);
  sqlite3_commit_hook(db_.raw(), &may_commit, this);
  sqlite3_rollback_hook(db_.raw(), &note_rollback, this);
}

}  // namespace lastdoor

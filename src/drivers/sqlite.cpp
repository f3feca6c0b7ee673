#include "sqlite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <vector>

#include "database_path.hpp"
#include "open_files.hpp"

namespace lastdoor::sqlite_driver {

namespace {

errc code_of(sqlite3* db, int rc) noexcept {
  switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_INTERRUPT:
    case SQLITE_PROTOCOL:
      return errc::unavailable;
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_NOTADB:
    case SQLITE_NOLFS:
      return errc::misconfigured;
    case SQLITE_CORRUPT:
      return errc::damaged;
    case SQLITE_IOERR:
      return errc::unavailable;
    case SQLITE_CONSTRAINT:
      return errc::precondition_failed;
    case SQLITE_TOOBIG:
    case SQLITE_RANGE:
    case SQLITE_MISMATCH:
      return errc::invalid_argument;
    case SQLITE_ERROR: {
      // SQLite has no code of its own for these; the text is stable.
      const std::string_view text = db != nullptr ? sqlite3_errmsg(db) : "";
      if (text.starts_with("no such table") ||
          text.starts_with("no such column") ||
          text.find("has no column named") != std::string_view::npos) {
        return errc::schema_mismatch;
      }
      return errc::invalid_argument;
    }
    default:
      return errc::internal;
  }
}

}  // namespace

error translate(sqlite3* db, int rc, std::string_view doing) {
  const char* text = rc == SQLITE_READONLY_DBMOVED ? moved_text
                     : db != nullptr               ? sqlite3_errmsg(db)
                                                   : sqlite3_errstr(rc);
  return fail(code_of(db, rc), fmt::format("{}: {}", doing, text))
      .backend(fmt::format("sqlite {} {}", rc, sqlite3_errstr(rc)));
}

std::string quoted_name(std::string_view name) {
  std::string out{"\""};
  for (const char c : name) {
    if (c == '"')
      out += '"';
    out += c;
  }
  return out += '"';
}

statement& statement::bind(int at, std::int64_t v) noexcept {
  const int rc = sqlite3_bind_int64(stmt_.get(), at, v);
  if (rc != SQLITE_OK)
    bind_rc_ = rc;
  return *this;
}

namespace {

int bind_text(sqlite3_stmt* s, int at, std::string_view text,
              sqlite3_destructor_type keep) noexcept {
  return sqlite3_bind_text64(s, at, text.data() ? text.data() : "", text.size(),
                             keep, SQLITE_UTF8);
}

int bind_value(sqlite3_stmt* s, int at, const value& v,
               sqlite3_destructor_type keep) noexcept {
  if (const auto* i = v.integer())
    return sqlite3_bind_int64(s, at, *i);
  if (const auto* t = v.text())
    return bind_text(s, at, *t, keep);
  if (const auto* d = v.real())
    return sqlite3_bind_double(s, at, *d);
  if (const auto* b = v.bytes()) {
    // A null pointer would bind NULL; an empty blob is not NULL.
    const void* data = b->empty() ? static_cast<const void*>("") : b->data();
    return sqlite3_bind_blob64(s, at, data, b->size(), keep);
  }
  return sqlite3_bind_null(s, at);
}

}  // namespace

statement& statement::bind(int at, std::string_view text) noexcept {
  const int rc = bind_text(stmt_.get(), at, text, SQLITE_TRANSIENT);
  if (rc != SQLITE_OK)
    bind_rc_ = rc;
  return *this;
}

statement& statement::bind(int at, const value& v) noexcept {
  const int rc = bind_value(stmt_.get(), at, v, SQLITE_TRANSIENT);
  if (rc != SQLITE_OK)
    bind_rc_ = rc;
  return *this;
}

statement& statement::bind_static(int at, std::string_view text) noexcept {
  const int rc = bind_text(stmt_.get(), at, text, SQLITE_STATIC);
  if (rc != SQLITE_OK)
    bind_rc_ = rc;
  return *this;
}

statement& statement::bind_static_value(int at, const value& v) noexcept {
  const int rc = bind_value(stmt_.get(), at, v, SQLITE_STATIC);
  if (rc != SQLITE_OK)
    bind_rc_ = rc;
  return *this;
}

result<bool> statement::step(std::string_view doing) {
  sqlite3* db = sqlite3_db_handle(stmt_.get());
  if (bind_rc_ != SQLITE_OK)
    return translate(db, bind_rc_, doing);
  const int rc = sqlite3_step(stmt_.get());
  if (rc == SQLITE_ROW)
    return true;
  if (rc == SQLITE_DONE)
    return false;
  return translate(db, rc, doing);
}

result<void> statement::run(std::string_view doing) {
  const scoped_reset at_end{*this};
  for (;;) {
    auto more = step(doing);
    if (!more)
      return more.error();
    if (!*more)
      return {};
  }
}

std::int64_t statement::integer(int column) const noexcept {
  return sqlite3_column_int64(stmt_.get(), column);
}

bool statement::is_null(int column) const noexcept {
  return sqlite3_column_type(stmt_.get(), column) == SQLITE_NULL;
}

bool statement::is_integer(int column) const noexcept {
  return sqlite3_column_type(stmt_.get(), column) == SQLITE_INTEGER;
}

std::string statement::text(int column) const {
  return std::string{view(column)};
}

std::string_view statement::view(int column) const noexcept {
  const auto* data = sqlite3_column_text(stmt_.get(), column);
  const int n = sqlite3_column_bytes(stmt_.get(), column);
  if (data == nullptr)
    return {};
  return {reinterpret_cast<const char*>(data), static_cast<std::size_t>(n)};
}

value statement::any(int column) const {
  switch (sqlite3_column_type(stmt_.get(), column)) {
    case SQLITE_INTEGER:
      return integer(column);
    case SQLITE_FLOAT:
      return sqlite3_column_double(stmt_.get(), column);
    case SQLITE_TEXT:
      return text(column);
    case SQLITE_BLOB: {
      const auto* data = static_cast<const std::byte*>(
          sqlite3_column_blob(stmt_.get(), column));
      const int n = sqlite3_column_bytes(stmt_.get(), column);
      return data == nullptr ? blob{} : blob(data, data + n);
    }
    default:
      return nullptr;
  }
}

int statement::columns() const noexcept {
  return sqlite3_column_count(stmt_.get());
}

std::int64_t statement::changes() const noexcept {
  return sqlite3_changes64(sqlite3_db_handle(stmt_.get()));
}

void statement::reset() noexcept {
  sqlite3_reset(stmt_.get());
  sqlite3_clear_bindings(stmt_.get());
  bind_rc_ = SQLITE_OK;
}

result<connection> connection::open(const std::string& path, open_mode mode) {
  if (auto ok = check_database_path(path); !ok)
    return ok.error();
  if (opened_before_fork(path)) {
    return fail(errc::misconfigured,
                fmt::format("'{}' was open when this process was forked, and "
                            "SQLite cannot open it again here; open it after "
                            "exec(), or fork before it is opened",
                            path));
  }
  // A file that is there keeps its journal mode: it may be the application's.
  std::error_code ec;
  const bool fresh =
      mode == open_mode::create && (!std::filesystem::exists(path, ec) ||
                                    std::filesystem::file_size(path, ec) == 0);
  int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
              SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;
  if (mode == open_mode::create)
    flags |= SQLITE_OPEN_CREATE;
  sqlite3* raw = nullptr;
  const auto doing = fmt::format("opening '{}'", path);
  const int rc =
      sqlite3_open_v2(sqlite_name(path).c_str(), &raw, flags, nullptr);
  connection db{handle{raw, closer{true}}};
  if (rc != SQLITE_OK)
    return translate(raw, rc, doing);
  db.file_ = open_file::note(path);
  if (!db.file_ || !db.file_->leads_here()) {
    return fail(errc::misconfigured,
                fmt::format("{}: the file went away meanwhile", doing));
  }
  db.patience_ = std::make_unique<patience>();
  if (sqlite3_db_readonly(raw, "main") == 1) {
    return fail(errc::misconfigured,
                fmt::format("{}: the file is read-only", doing));
  }
  db.busy_timeout(std::chrono::seconds{5});
  // Who changes the journal mode beside others who open the file, may be told
  // at once that it is locked: SQLite asks no busy handler where two might
  // wait for each other.
  const auto patiently = [&](const char* sql) {
    for (int count = 0;; ++count) {
      auto ok = db.exec(sql, doing);
      if (ok || (sqlite3_errcode(raw) & 0xff) != SQLITE_BUSY ||
          wait_for_others(db.patience_.get(), count) == 0)
        return ok;
    }
  };
  if (fresh) {
    // The change itself is still written with a rollback journal. EXTRA syncs
    // its deletion: should a power cut bring it back, it would undo the change
    // and with it the whole file.
    for (const char* sql :
         {"PRAGMA synchronous=EXTRA", "PRAGMA journal_mode=WAL",
          "PRAGMA synchronous=FULL"}) {
      if (auto ok = patiently(sql); !ok)
        return ok.error();
    }
  }
  // Reads the header, so that a file that is no database is named here.
  if (auto ok = patiently("PRAGMA schema_version"); !ok) {
    return ok.error();
  }
  return db;
}

connection::connection(handle db) noexcept : db_{std::move(db)} {}
connection::connection(connection&& other) noexcept = default;

connection& connection::operator=(connection&& other) noexcept {
  if (this == &other)
    return *this;
  if (file_ && file_->inherited())
    leak();
  cache_ = std::move(other.cache_);
  db_ = std::move(other.db_);
  patience_ = std::move(other.patience_);
  file_ = std::move(other.file_);
  return *this;
}

connection::~connection() {
  if (file_ && file_->inherited())
    leak();
}

result<connection> connection::in_memory() {
  sqlite3* raw = nullptr;
  const int rc = sqlite3_open_v2(
      ":memory:", &raw,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
      nullptr);
  connection db{handle{raw, closer{true}}};
  if (rc != SQLITE_OK)
    return translate(raw, rc, "opening a database in memory");
  return db;
}

connection connection::borrow(sqlite3* db) noexcept {
  return connection{handle{db, closer{false}}};
}

result<statement*> connection::cached(std::string_view sql,
                                      std::string_view doing) {
  if (const auto it = cache_.find(sql); it != cache_.end()) {
    return &it->second;
  }
  auto fresh = prepare(sql, doing);
  if (!fresh)
    return fresh.error();
  return &cache_.emplace(std::string{sql}, std::move(*fresh)).first->second;
}

result<statement> connection::prepare(std::string_view sql,
                                      std::string_view doing) {
  sqlite3_stmt* raw = nullptr;
  if (sql.size() > INT_MAX) {
    return fail(errc::invalid_argument, "the SQL text is too long");
  }
  const int rc =
      sqlite3_prepare_v3(db_.get(), sql.data(), static_cast<int>(sql.size()),
                         SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  if (rc != SQLITE_OK)
    return translate(db_.get(), rc, doing);
  return statement{raw};
}

result<void> connection::exec(const std::string& sql, std::string_view doing) {
  const int rc =
      sqlite3_exec(db_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (rc != SQLITE_OK)
    return translate(db_.get(), rc, doing);
  return {};
}

result<void> connection::exec_each(std::string_view sql, std::string_view doing,
                                   const std::function<void()>& after) {
  while (!sql.empty()) {
    sqlite3_stmt* raw = nullptr;
    const char* rest = nullptr;
    const int rc = sqlite3_prepare_v3(
        db_.get(), sql.data(), static_cast<int>(sql.size()), 0, &raw, &rest);
    if (rc != SQLITE_OK)
      return translate(db_.get(), rc, doing);
    sql.remove_prefix(static_cast<std::size_t>(rest - sql.data()));
    if (raw == nullptr)
      continue;  // a comment or blanks
    statement s{raw};
    if (auto ok = s.run(doing); !ok)
      return ok.error();
    if (after)
      after();
  }
  return {};
}

bool connection::moved() const noexcept {
  int moved = 0;
  sqlite3_file_control(db_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  // That looks at where the path led to, once its links were followed.
  return moved != 0 || (file_ && !file_->leads_here());
}

void connection::busy_timeout(duration d) noexcept {
  if (patience_) {
    patience_->limit = d;
    sqlite3_busy_handler(db_.get(), wait_for_others, patience_.get());
    return;
  }
  // The handle outlives us, so it gets nothing of ours.
  using std::chrono::milliseconds;
  const auto ms = std::chrono::ceil<milliseconds>(d).count();
  sqlite3_busy_timeout(
      db_.get(), static_cast<int>(std::clamp<std::int64_t>(ms, 0, INT_MAX)));
}

// SQLite's own handler naps for up to 100 ms at a time and counts its naps
// instead of looking at a clock: whoever naps longest meets the file free
// least often, and the limit is not kept. With eight processes that never
// pause, its worst wait was 1.1 to 1.9 s; with this one it is 0.2 s.
int connection::wait_for_others(void* patience_of_ours, int count) noexcept {
  constexpr std::int64_t shortest_us = 100;
  constexpr std::int64_t longest_us = 3000;
  auto& p = *static_cast<patience*>(patience_of_ours);
  const auto now = std::chrono::steady_clock::now();
  if (count == 0)
    p.since = now;
  const auto left = p.limit - (now - p.since);
  if (left <= duration{0})
    return 0;
  const auto cap = std::min(shortest_us << std::min(count, 5), longest_us);
  std::uint32_t random = 0;
  sqlite3_randomness(sizeof random, &random);
  const auto pause = std::min<std::int64_t>(
      cap / 2 + random % cap,
      std::chrono::ceil<std::chrono::microseconds>(left).count());
  sqlite3_vfs* vfs = sqlite3_vfs_find(nullptr);
  vfs->xSleep(vfs, static_cast<int>(pause));
  return 1;
}

bool connection::in_transaction() const noexcept {
  return sqlite3_get_autocommit(db_.get()) == 0;
}

void connection::leak() noexcept {
  // Kept where a leak checker finds it: this is on purpose.
  struct remains {
    std::unique_ptr<open_file> file;
    std::unique_ptr<patience> waits;
    handle db;
    decltype(cache_) statements;
  };
  static auto& guard = *new std::mutex;
  static auto& all = *new std::vector<remains>;
  const std::lock_guard lock{guard};
  // The statements as well: they touch the database when they are finalised.
  all.push_back({std::move(file_), std::move(patience_), std::move(db_),
                 std::move(cache_)});
}

result<transaction> transaction::begin_immediate(connection& db,
                                                 std::string_view doing) {
  auto begin = db.cached("BEGIN IMMEDIATE", doing);
  if (!begin)
    return begin.error();
  if (auto ok = (*begin)->run(doing); !ok)
    return ok.error();
  return transaction{db};
}

result<void> transaction::commit(std::string_view doing) {
  auto end = db_->cached("COMMIT", doing);
  if (!end)
    return end.error();
  auto ok = (*end)->run(doing);
  if (ok) {
    db_ = nullptr;
    return {};
  }
  // A commit that failed on its way to the disk may be there after all.
  const bool io = (sqlite3_errcode(db_->raw()) & 0xff) == SQLITE_IOERR;
  rollback();
  if (!io)
    return ok.error();
  return fail(errc::in_doubt, ok.error().text()).backend(ok.error().backend());
}

void transaction::rollback() noexcept {
  if (db_ == nullptr)
    return;
  if (db_->in_transaction()) {
    if (auto end = db_->cached("ROLLBACK", "rolling back"); end) {
      (*end)->run("rolling back").ignore();
    }
  }
  db_ = nullptr;
}

}  // namespace lastdoor::sqlite_driver

#include "sqlite_lease_table.hpp"

#include <fmt/format.h>

#include <utility>

namespace lastdoor {

namespace {

using sqlite_driver::connection;
using sqlite_driver::scoped_reset;
using sqlite_driver::statement;

constexpr std::string_view find_lease =
    "SELECT owner, token, holder, expires_at_ns, boot_id, released "
    "FROM main.lastdoor_leases WHERE name_space = ?1 AND resource = ?2";
constexpr std::string_view any_lease =
    "SELECT 1 FROM main.lastdoor_leases WHERE name_space = ?1 LIMIT 1";
constexpr std::string_view store_lease =
    "INSERT INTO main.lastdoor_leases (name_space, resource, owner, token, "
    "holder, expires_at_ns, boot_id, released) "
    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0) "
    "ON CONFLICT (name_space, resource) DO UPDATE SET owner = excluded.owner, "
    "token = excluded.token, holder = excluded.holder, "
    "expires_at_ns = excluded.expires_at_ns, boot_id = excluded.boot_id, "
    "released = 0";
// max(): a renewal for a shorter time must not end what was promised before.
constexpr std::string_view extend_lease =
    "UPDATE main.lastdoor_leases "
    "SET expires_at_ns = max(expires_at_ns, ?5) "
    "WHERE name_space = ?1 AND resource = ?2 AND owner = ?3 AND token = ?4 "
    "AND boot_id = ?6 AND released = 0 AND expires_at_ns > ?7";
constexpr std::string_view free_lease =
    "UPDATE main.lastdoor_leases SET released = 1 "
    "WHERE name_space = ?1 AND resource = ?2 AND owner = ?3";
constexpr std::string_view find_counter =
    "SELECT value, reserved_until, boot_id FROM main.lastdoor_counters "
    "WHERE name_space = ?1";
constexpr std::string_view store_counter =
    "INSERT INTO main.lastdoor_counters (name_space, value, reserved_until, "
    "boot_id) VALUES (?1, ?2, ?3, ?4) "
    "ON CONFLICT (name_space) DO UPDATE SET value = excluded.value, "
    "reserved_until = excluded.reserved_until, boot_id = excluded.boot_id";

std::int64_t nanoseconds(time_point t) noexcept {
  return t.time_since_epoch().count();
}

// Runs a write. A row that breaks a CHECK or trips a trigger of ours means
// that what is stored is not what it was made to be; no caller can do better.
result<void> run(statement& s, std::string_view doing) {
  auto ok = s.run(doing);
  if (ok || ok.code() != errc::precondition_failed) {
    return ok;
  }
  return fail(errc::damaged, ok.error().text()).backend(ok.error().backend());
}

result<bool> is_write_ahead(connection& db) {
  constexpr std::string_view doing = "reading the journal mode";
  auto mode = db.prepare("PRAGMA main.journal_mode", doing);
  if (!mode) {
    return mode.error();
  }
  auto there = mode->step(doing);
  if (!there) {
    return there.error();
  }
  return *there && mode->text(0) == "wal";
}

}  // namespace

lease_table::lease_table(connection db, std::string name_space,
                         std::string boot_id, bool write_ahead)
    : db_{std::move(db)},
      name_space_{std::move(name_space)},
      boot_id_{std::move(boot_id)},
      write_ahead_{write_ahead} {}

result<lease_table> lease_table::open(connection db, std::string name_space,
                                      std::string boot_id) {
  auto write_ahead = is_write_ahead(db);
  if (!write_ahead) {
    return write_ahead.error();
  }
  return lease_table{std::move(db), std::move(name_space), std::move(boot_id),
                     *write_ahead};
}

result<void> lease_table::set(durability level) {
  if (level_ == level) {
    return {};
  }
  const char* sql = "PRAGMA synchronous = EXTRA";
  if (write_ahead_) {
    sql = level == durability::synced ? "PRAGMA synchronous = FULL"
                                      : "PRAGMA synchronous = NORMAL";
  }
  level_.reset();
  // Not a cached statement: this pragma takes effect when it is compiled.
  if (auto ok = db_.exec(sql, "setting the durability"); !ok) {
    return ok.error();
  }
  level_ = level;
  return {};
}

result<std::optional<lease_row>> lease_table::find(
    const resource_name& resource, std::string_view doing) {
  auto query = db_.cached(find_lease, doing);
  if (!query) {
    return query.error();
  }
  auto& q = **query;
  const scoped_reset at_end{q};
  q.bind(1, std::string_view{name_space_});
  q.bind(2, std::string_view{resource.str()});
  auto there = q.step(doing);
  if (!there) {
    return there.error();
  }
  if (!*there) {
    return std::optional<lease_row>{};
  }
  auto token = mark::from_store(q.is_integer(1) ? q.integer(1) : -1);
  if (!token || !q.is_integer(3)) {
    return fail(
        errc::damaged,
        fmt::format("{}: its row is not one that lastdoor wrote", doing));
  }
  return std::optional{lease_row{q.text(0), *token, q.text(2),
                                 time_point{duration{q.integer(3)}},
                                 q.text(4) == boot_id_, q.integer(5) != 0}};
}

result<void> lease_table::store(const lease_request& request,
                                fencing_token token, time_point expires_at,
                                std::string_view doing) {
  auto s = db_.cached(store_lease, doing);
  if (!s) {
    return s.error();
  }
  (*s)->bind(1, std::string_view{name_space_})
      .bind(2, std::string_view{request.resource.str()})
      .bind(3, std::string_view{request.owner.str()})
      .bind(4, token.value())
      .bind(5, std::string_view{request.holder})
      .bind(6, nanoseconds(expires_at))
      .bind(7, std::string_view{boot_id_});
  return run(**s, doing);
}

result<bool> lease_table::extend(const grant& g, time_point now,
                                 time_point expires_at,
                                 std::string_view doing) {
  auto s = db_.cached(extend_lease, doing);
  if (!s) {
    return s.error();
  }
  (*s)->bind(1, std::string_view{name_space_})
      .bind(2, std::string_view{g.resource().str()})
      .bind(3, std::string_view{g.owner().str()})
      .bind(4, g.token().value())
      .bind(5, nanoseconds(expires_at))
      .bind(6, std::string_view{boot_id_})
      .bind(7, nanoseconds(now));
  if (auto ok = run(**s, doing); !ok) {
    return ok.error();
  }
  return (*s)->changes() == 1;
}

result<void> lease_table::free(const resource_name& resource,
                               const owner_id& owner, std::string_view doing) {
  auto s = db_.cached(free_lease, doing);
  if (!s) {
    return s.error();
  }
  (*s)->bind(1, std::string_view{name_space_})
      .bind(2, std::string_view{resource.str()})
      .bind(3, std::string_view{owner.str()});
  return run(**s, doing);
}

error lease_table::damaged_counter(std::string_view why,
                                   std::string_view doing) const {
  return fail(errc::damaged, fmt::format("{}: the token counter of '{}' {}",
                                         doing, name_space_, why));
}

// A name space begins without a counter and without leases. Leases alone mean
// that the counter was lost: starting at 1 would repeat tokens, and the
// leases do not tell how far it had come.
result<token_counter> lease_table::first_counter(std::string_view doing) {
  auto query = db_.cached(any_lease, doing);
  if (!query) {
    return query.error();
  }
  const scoped_reset at_end{**query};
  auto any = (*query)->bind(1, std::string_view{name_space_}).step(doing);
  if (!any) {
    return any.error();
  }
  if (*any) {
    return damaged_counter("is gone although there are leases", doing);
  }
  return token_counter{};
}

result<token_counter> lease_table::counter(std::string_view doing) {
  auto query = db_.cached(find_counter, doing);
  if (!query) {
    return query.error();
  }
  auto& q = **query;
  const scoped_reset at_end{q};
  auto there = q.bind(1, std::string_view{name_space_}).step(doing);
  if (!there) {
    return there.error();
  }
  if (!*there) {
    return first_counter(doing);
  }
  if (!q.is_integer(0) || !q.is_integer(1)) {
    return damaged_counter("is not an integer", doing);
  }
  const token_counter c{q.integer(0), q.integer(1), q.text(2) == boot_id_};
  if (!c.exhausted() && !c.plausible()) {
    return damaged_counter(fmt::format("is out of range: {}, reserved {}",
                                       c.value, c.reserved_until),
                           doing);
  }
  return c;
}

result<void> lease_table::store(const token_counter& c,
                                std::string_view doing) {
  auto s = db_.cached(store_counter, doing);
  if (!s) {
    return s.error();
  }
  (*s)->bind(1, std::string_view{name_space_})
      .bind(2, c.value)
      .bind(3, c.reserved_until)
      .bind(4, std::string_view{boot_id_});
  return run(**s, doing);
}

}  // namespace lastdoor

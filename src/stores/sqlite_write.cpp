// Built writes of the SQLite store: what is kept for each shape of statement,
// and the one-statement way. See sqlite_store_impl.hpp.
#include <fmt/format.h>

#include "sqlite_store_impl.hpp"
#include "stores/sqlite_table.hpp"

namespace lastdoor {

namespace {

using fencing::slot;
using sqlite::write_shape;
using verb = statement::verb;

constexpr std::string_view writing = "writing";

// Programs that build their statements from data would fill the memory.
constexpr std::size_t most_shapes = 256;

error refuse(std::string why) {
  return fail(errc::invalid_argument, std::move(why));
}

// What the table must be for a fence to mean anything.
result<void> check_table(const statement& s, const sqlite::table_info& t,
                         std::string_view fence) {
  switch (t.kind) {
    case sqlite::table_kind::absent:
      return fail(errc::schema_mismatch,
                  fmt::format("there is no table '{}'", s.table()));
    case sqlite::table_kind::table:
      break;
    default:
      return refuse(
          fmt::format("'{}' is a view or a virtual table; a fence "
                      "needs a table",
                      s.table()));
  }
  const auto* column = t.find(fence);
  if (column == nullptr) {
    return fail(errc::schema_mismatch,
                fmt::format("the table '{}' has no column '{}': run lastdoor "
                            "migrate add-fence",
                            s.table(), fence));
  }
  if (!sqlite::keeps_integers(column->type)) {
    return fail(errc::schema_mismatch,
                fmt::format("the column '{}' of '{}' is {} and turns a token "
                            "into something else; it must be INTEGER NOT NULL",
                            fence, s.table(), column->type));
  }
  return {};
}

result<void> check_target(const statement& s, bool ledger) {
  if (!s.schema().empty() &&
      !fencing::same_name(s.schema(), "main", fencing::dialect::sqlite)) {
    return refuse(
        fmt::format("the schema '{}' is not the store's file", s.schema()));
  }
  if (sqlite::reserved_name(s.table())) {
    return refuse(fmt::format("'{}' is not yours to write", s.table()));
  }
  if (!ledger && s.what() == verb::erase) {
    return refuse("an erase needs the ledger: the mark would go with the row");
  }
  if (!ledger && s.what() == verb::insert && s.matches().empty()) {
    return refuse(
        "without the ledger an insert needs a key, or nothing "
        "tells a late one from a timely one");
  }
  return {};
}

bool inserts(const statement& s) {
  return s.what() == verb::insert || s.what() == verb::upsert;
}

// Which rows the statement can mean, given what the table keeps unique.
void count_rows(const statement& s, const sqlite::table_info& t,
                write_shape& shape) {
  std::vector<std::string_view> named;
  std::size_t lists = 0;
  for (std::size_t i = 0; i < s.matches().size(); ++i) {
    named.push_back(s.matches()[i].column);
    if (s.matches()[i].any_of.size() != 1) {
      ++lists;
      shape.list = i;
    }
  }
  const bool unique = t.names_one_row(named);
  shape.one_row = inserts(s) || (unique && lists == 0);
  shape.list_is_unique = unique && lists == 1;
}

result<void> check_numbers(const write_options& o, bool ledger) {
  if (o.sequence && !ledger) {
    return refuse(
        "the ledger keeps the numbers of writes, and this store was "
        "opened without it");
  }
  if (o.sequence && *o.sequence < 1) {
    return refuse("writes are numbered from 1");
  }
  return {};
}

}  // namespace

namespace sqlite {

namespace {

void bind_grant(sqlite_driver::statement& s, int at, slot::origin from,
                const grant& g) {
  switch (from) {
    case slot::origin::token:
      s.bind(at, g.token().value());
      break;
    case slot::origin::resource:
      s.bind_static(at, g.resource().str());
      break;
    case slot::origin::owner:
      s.bind_static(at, g.owner().str());
      break;
    default:
      s.bind_static(at, g.source().str());
      break;
  }
}

void bind_value(sqlite_driver::statement& s, int at, slot::origin from,
                const value& v) {
  if (from != slot::origin::negated) {
    s.bind_static_value(at, v);
  } else if (const auto* d = v.real()) {
    s.bind(at, value{-*d});
  } else {
    s.bind(at, -*v.integer());
  }
}

bool of_grant(const slot& place) { return place.from >= slot::origin::token; }

// Whether the statement keeps a pointer to the value.
bool kept_by_address(const value& v) {
  return v.text() != nullptr || v.bytes() != nullptr;
}

}  // namespace

bound_values::bound_values(prepared_write& w, const grant& g,
                           const lastdoor::statement& s)
    : w_{w}, s_{s} {
  const bool known = w.bound && *w.bound == g;
  if (!known) {
    w.bound = g;
  }
  int at = 0;
  for (const auto& place : w.slots) {
    ++at;
    if (!of_grant(place)) {
      bind_value(w.stmt, at, place.from, fencing::value_of(place, s));
    } else if (!known) {
      bind_grant(w.stmt, at, place.from, *w.bound);
    }
  }
}

bound_values::~bound_values() {
  if (w_.stmt.bind_error() != SQLITE_OK) {
    w_.bound.reset();
    w_.stmt.reset();
    return;
  }
  sqlite3_reset(w_.stmt.raw());
  int at = 0;
  for (const auto& place : w_.slots) {
    ++at;
    if (!of_grant(place) && kept_by_address(fencing::value_of(place, s_))) {
      sqlite3_bind_null(w_.stmt.raw(), at);
    }
  }
}

}  // namespace sqlite

fencing::render_options sqlite_store::impl::rendering(bool with_ledger) const {
  fencing::render_options o;
  o.fence_column = options_.fence_column;
  o.rule = rule_;
  o.ledger = with_ledger;
  o.default_schema = "main";
  return o;
}

void sqlite_store::impl::forget_shapes() noexcept {
  last_shape_ = nullptr;
  shapes_.clear();
  schema_moved_ = false;
}

result<write_shape*> sqlite_store::impl::shape_for(const statement& s) {
  if (last_shape_ != nullptr && fencing::same_shape(last_shape_->like, s)) {
    return last_shape_;
  }
  const auto hash = fencing::shape_hash(s);
  if (const auto it = shapes_.find(hash);
      it != shapes_.end() && fencing::same_shape(it->second->like, s)) {
    last_shape_ = it->second.get();
    return last_shape_;
  }
  auto made = make_shape(s);
  if (!made) {
    return made.error();
  }
  if (shapes_.size() >= most_shapes) {
    forget_shapes();
  }
  auto& kept = shapes_[hash];
  kept = std::move(*made);
  last_shape_ = kept.get();
  return last_shape_;
}

result<std::unique_ptr<write_shape>> sqlite_store::impl::make_shape(
    const statement& s) {
  if (auto ok = fencing::check_shape(s, rendering(false)); !ok) {
    return ok.error();
  }
  if (auto ok = check_target(s, options_.ledger); !ok) {
    return ok.error();
  }
  auto table = sqlite::inspect_table(db_, s.table());
  if (!table) {
    return table.error();
  }
  if (auto ok = check_table(s, *table, options_.fence_column); !ok) {
    return ok.error();
  }
  auto shape = std::make_unique<write_shape>(fencing::shape_of(s));
  count_rows(s, *table, *shape);
  for (const auto& c : table->identity) {
    shape->identity.push_back(c.name);
  }
  if (!shape->one_row) {
    return shape;
  }
  saw_trigger_ = false;
  if (auto ok = prepare(shape->alone,
                        fencing::render_write(s, rendering(options_.ledger)));
      !ok) {
    return ok.error();
  }
  // With triggers one statement is not one change: a RAISE(FAIL) leaves half
  // of it, a guard wants a token presented first.
  shape->fast = !saw_trigger_;
  return shape;
}

result<void> sqlite_store::impl::prepare(sqlite::prepared_write& into,
                                         fencing::rendered text) {
  auto fresh = db_.prepare(text.sql, "preparing the write");
  if (!fresh) {
    return fresh.error();
  }
  into.stmt = std::move(*fresh);
  into.bound.reset();
  into.slots = std::move(text.slots);
  return {};
}

// Nothing: not settled this way; what it was is for write_slow to find out.
std::optional<result<receipt>> sqlite_store::impl::write_fast(
    const grant& g, const statement& s, write_shape& shape) {
  auto& w = shape.alone;
  const sqlite::bound_values bound{w, g, s};
  receipt r;
  int rc = w.stmt.bind_error() == SQLITE_OK ? SQLITE_ROW : SQLITE_TOOBIG;
  speaker_ = speaker::fast;
  while (rc == SQLITE_ROW) {
    rc = sqlite3_step(w.stmt.raw());
    if (rc == SQLITE_ROW) {
      auto& returned = r.returned.emplace_back();
      for (int i = 0; i < w.stmt.columns(); ++i) {
        returned.push_back(w.stmt.any(i));
      }
    }
  }
  speaker_ = speaker::store;
  if (rc == SQLITE_DONE) {
    r.rows = w.stmt.changes();
    if (r.rows == 1) {
      return r;
    }
    return std::nullopt;
  }
  switch (rc & 0xff) {
    case SQLITE_AUTH:
      schema_moved_ = true;
      return std::nullopt;
    case SQLITE_CONSTRAINT:
      return std::nullopt;
    case SQLITE_IOERR:  // it may have come while the commit was written
      return sqlite::about(fail(errc::in_doubt, sqlite3_errmsg(db_.raw()))
                               .backend(fmt::format("sqlite {}", rc)),
                           g);
    default:
      return sqlite::about(sqlite_driver::translate(db_.raw(), rc, writing), g);
  }
}

result<receipt> sqlite_store::impl::write(const grant& g, const statement& s,
                                          const write_options& o) {
  if (auto ok = check_numbers(o, options_.ledger); !ok) {
    return ok.error();
  }
  if (auto ok = fencing::check_values(s); !ok) {
    return ok.error();
  }
  const turn mine{*this};
  if (mine.refused()) {
    return *mine.refused();
  }
  if (auto ok = ready_for(g); !ok) {
    return ok.error();
  }
  if (schema_moved_) {
    forget_shapes();
  }
  auto shape = shape_for(s);
  if (!shape) {
    return sqlite::about(shape.error(), g);
  }
  if ((*shape)->fast && !o.sequence) {
    if (auto settled = write_fast(g, s, **shape)) {
      return std::move(*settled);
    }
    if (schema_moved_) {
      forget_shapes();
    }
  }
  return write_slow(g, s, o);
}

}  // namespace lastdoor

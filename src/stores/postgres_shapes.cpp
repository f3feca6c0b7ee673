// What the Postgres store keeps for each shape of statement.
// See postgres_store_impl.hpp.
#include <fmt/format.h>

#include <algorithm>

#include "stores/postgres_store_impl.hpp"
#include "stores/postgres_table.hpp"

namespace lastdoor {

namespace {

using fencing::slot;
using postgres::relation_kind;
using postgres::text_and_slots;
using postgres::write_shape;
using verb = statement::verb;

// Programs that build their statements from data would fill the memory.
constexpr std::size_t most_shapes = 256;

error refuse(std::string why) {
  return fail(errc::invalid_argument, std::move(why));
}

result<void> check_target(const statement& s, const postgres::relation& t) {
  if (t.kind == relation_kind::absent) {
    return fail(errc::schema_mismatch,
                fmt::format("there is no table '{}'", s.table()));
  }
  if (postgres::reserved_schema(t.schema)) {
    return refuse(fmt::format("{} is not yours to write", t.shown()));
  }
  if (t.kind != relation_kind::table && t.kind != relation_kind::partitioned) {
    return refuse(
        fmt::format("{} is no table of this database, and a fence "
                    "needs one",
                    t.shown()));
  }
  return {};
}

result<void> check_verb(const statement& s, bool ledger) {
  if (!ledger && s.what() == verb::erase) {
    return refuse("an erase needs the ledger: the mark would go with the row");
  }
  if (!ledger && s.what() == verb::insert && s.matches().empty()) {
    return refuse(
        "without the ledger an insert needs a key, or nothing tells a late "
        "one from a timely one");
  }
  return {};
}

bool inserts(const statement& s) {
  return s.what() == verb::insert || s.what() == verb::upsert;
}

bool names_one_row(const statement& s,
                   const std::vector<postgres::unique_key>& keys) {
  const auto named = [&](const std::string& column) {
    return std::any_of(s.matches().begin(), s.matches().end(),
                       [&](const auto& m) { return m.column == column; });
  };
  return std::any_of(keys.begin(), keys.end(), [&](const auto& key) {
    return std::all_of(key.columns.begin(), key.columns.end(), named);
  });
}

// Which rows the statement can mean, given what the table keeps unique. The
// rows of tables that inherit are part of this one, and no key spans them.
void count_rows(const statement& s, bool has_heirs,
                const std::vector<postgres::unique_key>& keys,
                write_shape& shape) {
  std::size_t lists = 0;
  for (std::size_t i = 0; i < s.matches().size(); ++i) {
    if (s.matches()[i].any_of.size() != 1) {
      ++lists;
      shape.list = i;
    }
  }
  const bool unique = !has_heirs && names_one_row(s, keys);
  shape.one_row = inserts(s) || (unique && lists == 0);
  shape.list_is_unique = unique && lists == 1;
  if (!keys.empty() && keys.front().primary) {
    shape.identity = keys.front().columns;
  }
}

text_and_slots taken(fencing::rendered text) {
  return {std::move(text.sql), std::move(text.slots)};
}

// The ledger's row and the first row that the statement names, each NULL
// where there is none, in one answer and so as of one moment.
text_and_slots verdict_text(fencing::rendered probe, bool ledger) {
  text_and_slots out;
  out.slots = std::move(probe.slots);
  std::string head =
      "SELECT NULL::bigint, NULL::text, NULL::text, p.* FROM "
      "(VALUES (1)) AS one (n)";
  if (ledger) {
    const slot resource{slot::origin::resource};
    auto at = std::find(out.slots.begin(), out.slots.end(), resource);
    if (at == out.slots.end()) {
      at = out.slots.insert(at, resource);
    }
    head = fmt::format(
        "SELECT m.token, m.owner, m.source, p.* FROM (VALUES (1)) AS one (n) "
        "LEFT JOIN lastdoor.marks AS m ON m.resource = ${}",
        at - out.slots.begin() + 1);
  }
  out.sql = fmt::format(
      "{} LEFT JOIN (SELECT true, q.* FROM ({}) AS q) AS p ON true LIMIT 1",
      head, probe.sql);
  return out;
}

}  // namespace

fencing::render_options postgres_store::impl::rendering(
    bool with_ledger) const {
  fencing::render_options o;
  o.target = fencing::dialect::postgres;
  o.fence_column = options_.fence_column;
  o.rule = rule_;
  o.ledger = with_ledger;
  return o;
}

result<postgres::shape_ptr> postgres_store::impl::shape_for(
    const statement& s) {
  const auto hash = fencing::shape_hash(s);
  {
    const std::lock_guard lock{mutex_};
    if (const auto it = shapes_.find(hash);
        it != shapes_.end() && fencing::same_shape(it->second->like, s)) {
      return it->second;
    }
  }
  auto made = make_shape(s);
  if (!made) {
    return made.error();
  }
  const std::lock_guard lock{mutex_};
  if (shapes_.size() >= most_shapes) {
    shapes_.clear();
  }
  shapes_[hash] = *made;
  return made;
}

// A guard was installed after the shape was made; the write that it refused
// has changed nothing.
bool postgres_store::impl::again_with_evidence(const statement& s,
                                               const error& e) {
  if (e.backend() != "LD002") {
    return false;
  }
  auto shape = shape_for(s);
  if (!shape || (*shape)->evidence) {
    return false;
  }
  guards_ = true;
  forget_shape(s);
  return true;
}

void postgres_store::impl::forget_shape(const statement& s) {
  const std::lock_guard lock{mutex_};
  shapes_.erase(fencing::shape_hash(s));
}

result<postgres::shape_ptr> postgres_store::impl::make_shape(
    const statement& s) {
  if (auto ok = fencing::check_shape(s, rendering(false)); !ok) {
    return ok.error();
  }
  if (auto ok = check_verb(s, options_.ledger); !ok) {
    return ok.error();
  }
  auto loan = pool_.borrow(deadline());
  if (!loan) {
    return loan.error();
  }
  auto& db = **loan;
  auto table = postgres::find_relation(db, s.schema(), s.table(), deadline());
  if (!table) {
    return table.error();
  }
  if (auto ok = check_target(s, *table); !ok) {
    return ok.error();
  }
  auto fence =
      postgres::find_column(db, table->oid, options_.fence_column, deadline());
  auto keys = postgres::find_keys(db, table->oid, deadline());
  if (!fence || !keys) {
    return fence ? keys.error() : fence.error();
  }
  if (!*fence || (*fence)->type != "bigint") {
    return fail(errc::schema_mismatch,
                fmt::format("{} has no column '{}' of type bigint: run "
                            "lastdoor migrate add-fence",
                            table->shown(), options_.fence_column));
  }
  auto shape = std::make_shared<write_shape>(fencing::shape_of(s));
  count_rows(s, table->has_heirs, *keys, *shape);
  // From here on the table is named with its schema: what was looked at is
  // what is written, whatever happens to the search_path.
  shape->schema = table->schema;
  auto with_ledger = rendering(options_.ledger);
  shape->evidence = guards_;
  with_ledger.evidence = shape->evidence;
  auto without = rendering(false);
  with_ledger.default_schema = shape->schema;
  without.default_schema = shape->schema;
  shape->inside = taken(fencing::render_write(s, without));
  auto probe = fencing::render_probe(s, without, shape->identity);
  shape->probe = taken(probe);
  shape->locking_probe = shape->probe;
  shape->locking_probe.sql += " FOR UPDATE";
  if (shape->one_row) {
    shape->alone = taken(fencing::render_write(s, with_ledger));
    shape->verdict = verdict_text(std::move(probe), options_.ledger);
  }
  return postgres::shape_ptr{std::move(shape)};
}

}  // namespace lastdoor

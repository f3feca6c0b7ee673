// status: who holds a lock, and what the store's ledger says.
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cli/backends.hpp"
#include "cli/commands.hpp"
#include "cli/durations.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"

namespace lastdoor::cli {

namespace {

struct status_arguments {
  std::string locks, store, resource, after;
  std::size_t limit{100};
};

// What is known of one resource; what was not asked for is absent.
struct entry {
  std::string resource;
  std::optional<lease_status> lease;
  std::optional<mark_status> marked;
};

struct page {
  std::vector<entry> entries;
  std::optional<std::string> source;  // of the lock service
  std::optional<std::string> next_after;
};

result<page> read_marks(const status_arguments& a) {
  auto s = open_store(a.store);
  if (!s) {
    return s.error();
  }
  page p;
  if (!a.resource.empty()) {
    auto name = resource_name::parse(a.resource);
    if (!name) {
      return name.error();
    }
    auto m = (*s)->read_mark(*name);
    if (!m) {
      return m.error();
    }
    p.entries.push_back({a.resource, {}, mark_status{a.resource, *m, {}, 0}});
    return p;
  }
  // One more than asked for tells whether there is another page.
  auto rows = (*s)->list_marks(a.after, a.limit + 1);
  if (!rows) {
    return rows.error();
  }
  if (rows->size() > a.limit) {
    rows->resize(a.limit);
    p.next_after = rows->back().resource;
  }
  for (mark_status& row : *rows) {
    p.entries.push_back({row.resource, {}, std::move(row)});
  }
  return p;
}

result<void> read_leases(const status_arguments& a, page& p) {
  auto locks = open_existing_locks(a.locks);
  if (!locks) {
    return locks.error();
  }
  p.source = locks->source().str();
  for (entry& e : p.entries) {
    auto seen = locks->inspect(e.resource);
    if (!seen) {
      return seen.error();
    }
    e.lease = std::move(*seen);
  }
  return {};
}

json to_json(const page& p) {
  json list = json::array();
  for (const entry& e : p.entries) {
    json j = {{"resource", e.resource}};
    if (e.lease) {
      j["held"] = e.lease->held;
      j["holder"] = e.lease->holder;
      j["remaining_ms"] = whole_ms(e.lease->remaining);
      j["last_token"] = std::to_string(e.lease->last_token.value());
    }
    if (e.marked) {
      j["mark"] = std::to_string(e.marked->token.value());
      if (!e.marked->source.empty()) {
        j["mark_source"] = e.marked->source;
        j["last_sequence"] = e.marked->last_sequence;
      }
    }
    list.push_back(std::move(j));
  }
  json out = {{"resources", std::move(list)}};
  if (p.source) {
    out["source"] = *p.source;
  }
  out["next_after"] = p.next_after ? json(*p.next_after) : json(nullptr);
  return out;
}

std::string or_dash(std::int64_t number) {
  return number == 0 ? "-" : std::to_string(number);
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string to_text(const page& p, bool leases, bool marks) {
  std::vector<std::string> heading{"RESOURCE"};
  if (leases) {
    heading.insert(heading.end(), {"HELD BY", "FOR", "LAST TOKEN"});
  }
  if (marks) {
    heading.insert(heading.end(), {"MARK", "OF SOURCE"});
  }
  std::vector<std::vector<std::string>> rows{heading};
  for (const entry& e : p.entries) {
    auto& row = rows.emplace_back(std::vector{e.resource});
    if (e.lease) {
      row.push_back(e.lease->held ? or_dash(e.lease->holder) : "nobody");
      row.push_back(e.lease->held ? format_duration(e.lease->remaining) : "-");
      row.push_back(or_dash(e.lease->last_token.value()));
    }
    if (e.marked) {
      row.push_back(or_dash(e.marked->token.value()));
      row.push_back(or_dash(e.marked->source));
    }
  }
  std::string out = table(rows);
  if (p.next_after) {
    out += "More: repeat with --after '" + *p.next_after + "'\n";
  }
  return out;
}

int show(const status_arguments& a, const output& out) {
  const bool leases = !a.locks.empty();
  const bool marks = !a.store.empty();
  if (!leases && !marks) {
    return out.failed(
        fail(errc::invalid_argument, "status needs --locks, --store or both"));
  }
  if (!marks && a.resource.empty()) {
    return out.failed(fail(errc::invalid_argument,
                           "status of a lock service needs --resource; with "
                           "--store it lists the store's resources"));
  }
  page p;
  if (marks) {
    auto read = read_marks(a);
    if (!read) {
      return out.failed(read.error());
    }
    p = std::move(*read);
  } else {
    p.entries.push_back({a.resource, {}, {}});
  }
  if (leases) {
    if (auto ok = read_leases(a, p); !ok) {
      return out.failed(ok.error());
    }
  }
  return out.done(to_json(p), to_text(p, leases, marks));
}

}  // namespace

void add_status(CLI::App& root, invocation& call) {
  auto a = std::make_shared<status_arguments>();
  CLI::App* c = root.add_subcommand(
      "status", "Who holds a lock, and the marks in a store's ledger");
  add_locks(*c, a->locks);
  add_store(*c, a->store);
  add_resource(*c, a->resource);
  c->add_option("--after", a->after, "List from after this resource");
  c->add_option("--limit", a->limit, "List so many at most (100)")
      ->check(CLI::Range(1, 10000));
  add_json(*c, call);
  c->callback([a, &call] {
    call.action = [a, &call] { return show(*a, output{call.json}); };
  });
}

}  // namespace lastdoor::cli

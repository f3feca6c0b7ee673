// migrate: lastdoor's tables, and fences for tables that are there.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "cli/backends.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"

namespace lastdoor::cli {

namespace {

struct migrate_arguments {
  std::string store;
  int to{-1};
  std::string discard_marks;  // the store's name, typed again
  fence_request fence;
  std::string guard;  // as typed; empty: unsaid
  bool dry_run{false};
};

std::string versions_text(std::string_view did, const std::vector<int>& v,
                          const std::string& name) {
  if (v.empty()) {
    return fmt::format("{}: nothing to do\n", name);
  }
  std::string list;
  for (const int version : v) {
    list += fmt::format("{}{}", list.empty() ? "" : ", ", version);
  }
  return fmt::format("{}: {} {}\n", name, did, list);
}

int up(migrator& m, const migrate_arguments&, const output& out) {
  auto done = m.up();
  if (!done) {
    return out.failed(done.error());
  }
  return out.done({{"store", m.name()}, {"applied", *done}},
                  versions_text("applied", *done, m.name()));
}

int down(migrator& m, const migrate_arguments& a, const output& out) {
  // Without the marks an old token would pass, so the database whose marks
  // are to go must be named once more. A flag is too easily kept in a script.
  const bool discard = !a.discard_marks.empty();
  if (discard && a.discard_marks != m.name()) {
    return out.failed(
        fail(errc::invalid_argument,
             fmt::format("--discard-marks names '{}', but the store is '{}'",
                         a.discard_marks, m.name())));
  }
  auto done = m.down(a.to, discard);
  if (!done) {
    return out.failed(done.error());
  }
  return out.done({{"store", m.name()}, {"taken_back", *done}},
                  versions_text("took back", *done, m.name()));
}

int status(migrator& m, const migrate_arguments&, const output& out) {
  auto all = m.status();
  if (!all) {
    return out.failed(all.error());
  }
  json list = json::array();
  std::vector<std::vector<std::string>> rows{
      {"VERSION", "NAME", "APPLIED", "TEXT"}};
  for (const migration_status& s : *all) {
    list.push_back({{"version", s.version},
                    {"name", s.name},
                    {"applied", s.applied},
                    {"checksum_matches", s.checksum_matches}});
    rows.push_back({std::to_string(s.version), s.name, s.applied ? "yes" : "no",
                    !s.applied           ? "-"
                    : s.checksum_matches ? "as released"
                                         : "DIFFERS"});
  }
  return out.done({{"store", m.name()}, {"migrations", std::move(list)}},
                  table(rows, {0}));
}

int verify(migrator& m, const migrate_arguments&, const output& out) {
  auto differences = m.verify();
  if (!differences) {
    return out.failed(differences.error());
  }
  if (differences->empty()) {
    return out.done(
        {{"store", m.name()}, {"differences", json::array()}},
        fmt::format("{}: everything is as this release made it\n", m.name()));
  }
  if (!out.as_json()) {
    for (const std::string& d : *differences) {
      out.note(fmt::format("{}: {}", m.name(), d));
    }
  }
  return out.failed(
      fail(errc::schema_mismatch,
           fmt::format("{}: {} difference{}", m.name(), differences->size(),
                       differences->size() == 1 ? "" : "s")),
      {{"store", m.name()}, {"differences", *differences}});
}

int add_fence(migrator& m, const migrate_arguments& a, const output& out) {
  fence_request r = a.fence;
  if (!a.guard.empty()) {
    r.guard = a.guard == "strict"  ? guard_mode::strict
              : a.guard == "audit" ? guard_mode::audit
                                   : guard_mode::none;
  }
  const std::string guard = a.guard.empty() ? "none" : a.guard;
  auto plan = a.dry_run ? m.plan(r) : m.apply(r);
  if (!plan) {
    return out.failed(plan.error());
  }
  const std::string table =
      r.schema.empty() ? r.table : r.schema + "." + r.table;
  const json object = {{"store", m.name()},
                       {"table", table},
                       {"column", r.column},
                       {"guard", guard},
                       {"dry_run", a.dry_run},
                       {"notes", plan->notes},
                       {"statements", plan->statements}};
  if (a.dry_run) {
    return out.done(object, m.script(*plan));
  }
  std::string text;
  for (const std::string& note : plan->notes) {
    text += fmt::format("note: {}\n", note);
  }
  text += fmt::format("{}: table {}, column {}, guard {}: {}\n", m.name(),
                      table, r.column, guard,
                      plan->statements.empty() ? "nothing to do" : "done");
  return out.done(object, text);
}

using verb = int (*)(migrator&, const migrate_arguments&, const output&);

CLI::App* add_verb(CLI::App& parent, invocation& call,
                   const std::shared_ptr<migrate_arguments>& a,
                   const char* name, const char* what, verb act) {
  CLI::App* c = parent.add_subcommand(name, what);
  add_store(*c, a->store)->required();
  add_json(*c, call);
  c->callback([a, &call, act] {
    call.action = [a, &call, act] {
      const output out{call.json};
      auto m = open_migrator(a->store);
      return m ? act(**m, *a, out) : out.failed(m.error());
    };
  });
  return c;
}

}  // namespace

void add_migrate(CLI::App& root, invocation& call) {
  auto a = std::make_shared<migrate_arguments>();
  CLI::App* parent = root.add_subcommand(
      "migrate", "lastdoor's tables, and fences for the tables you have");
  parent->require_subcommand(1);
  add_verb(*parent, call, a, "up", "Apply what is missing", up);
  CLI::App* back =
      add_verb(*parent, call, a, "down", "Take migrations back", down);
  back->add_option("--to", a->to, "The version to keep; 0 keeps nothing")
      ->required()
      ->check(CLI::Range(0, 9999));
  back->add_option("--discard-marks", a->discard_marks,
                   "Also while marks exist: old tokens pass afterwards. "
                   "The value is the store's PATH, or its URL with *** for the "
                   "password, typed again");
  add_verb(*parent, call, a, "status", "What is applied", status);
  add_verb(*parent, call, a, "verify",
           "Compare every object of lastdoor's with this release", verify);
  CLI::App* fence = add_verb(*parent, call, a, "add-fence",
                             "Fence one of your tables", add_fence);
  fence->add_option("--table", a->fence.table, "The table")->required();
  fence->add_option("--schema", a->fence.schema, "Its schema");
  fence->add_option("--column", a->fence.column,
                    "The column of the token (fence_token)");
  fence
      ->add_option("--guard", a->guard,
                   "Triggers: strict refuse, audit record, none (none; to be "
                   "said where there is a guard)")
      ->check(CLI::IsMember({"strict", "audit", "none"}));
  fence->add_flag("--dry-run", a->dry_run, "Print the SQL, change nothing");
}

}  // namespace lastdoor::cli

// redlock init | status | admit | change: the servers of a Redlock cluster.
#include <fmt/format.h>

#include <lastdoor/locks/redlock.hpp>
#include <memory>
#include <optional>

#include "cli/backends.hpp"
#include "cli/commands.hpp"
#include "cli/durations.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"

namespace lastdoor::cli {

namespace {

struct redlock_arguments {
  std::string locks;
  std::string to;
  std::string max_ttl{"60s"};
  std::string floor;
  bool durable{false};
};

struct redlock_target {
  std::vector<std::string> servers;
  redlock_options options;
};

result<redlock_target> target_of(std::string_view option,
                                 const std::string& text) {
  auto url = parse_url(option, text);
  if (!url) {
    return url.error();
  }
  if (url->scheme != "redlock") {
    return fail(errc::invalid_argument,
                fmt::format("{}: must be a redlock:// URL", option));
  }
  auto servers = redlock_servers(url->path);
  if (!servers) {
    return servers.error();
  }
  redlock_target out{std::move(*servers), {}};
  if (!url->name_space.empty()) {
    out.options.name_space = url->name_space;
  }
  // A person waits for the answer, not a lease.
  out.options.node_timeout = std::chrono::seconds{2};
  out.options.call_timeout = std::chrono::seconds{5};
  return out;
}

result<redlock_target> target_of(const redlock_arguments& a) {
  return target_of("--locks", a.locks);
}

result<std::optional<mark>> floor_of(const redlock_arguments& a) {
  if (a.floor.empty()) {
    return std::optional<mark>{};
  }
  if (a.floor == "0") {
    return std::optional{mark{}};
  }
  auto token = fencing_token::parse(a.floor);
  if (!token) {
    return fail(errc::invalid_argument, "--floor: " + token.error().text());
  }
  return std::optional{mark{*token}};
}

std::string_view word_of(redlock_node_status::condition c) {
  using condition = redlock_node_status::condition;
  switch (c) {
    case condition::admitted:
      return "admitted";
    case condition::quarantined:
      return "quarantined";
    case condition::unreachable:
      return "unreachable";
    case condition::foreign:
      return "foreign";
    case condition::closed:
      break;
  }
  return "closed";
}

std::int64_t ms_of(duration d) {
  return std::chrono::ceil<std::chrono::milliseconds>(d).count();
}

int init_cluster(const redlock_arguments& a, const output& out) {
  auto target = target_of(a);
  auto max_ttl = parse_duration("--max-ttl", a.max_ttl);
  auto floor = floor_of(a);
  if (!target || !max_ttl || !floor) {
    return out.failed(!target    ? target.error()
                      : !max_ttl ? max_ttl.error()
                                 : floor.error());
  }
  const redlock_init_options how{*max_ttl, floor->value_or(mark{}), a.durable};
  if (auto ok = redlock_init(target->servers, how, target->options); !ok) {
    return out.failed(ok.error());
  }
  return out.done(
      {{"servers", target->servers.size()}, {"max_ttl_ms", ms_of(*max_ttl)}},
      fmt::format("{} servers belong together now; TTLs up to {} ms\n",
                  target->servers.size(), ms_of(*max_ttl)));
}

int show_cluster(const redlock_arguments& a, const output& out) {
  auto target = target_of(a);
  if (!target) {
    return out.failed(target.error());
  }
  auto all = redlock_status(target->servers, target->options);
  if (!all) {
    return out.failed(all.error());
  }
  json servers = json::array();
  std::vector<std::vector<std::string>> rows{
      {"server", "is", "counter", "waits ms", "why"}};
  for (const auto& s : *all) {
    servers.push_back({{"server", s.server},
                       {"is", word_of(s.now)},
                       {"counter", std::to_string(s.counter)},
                       {"waits_ms", ms_of(s.wait_left)},
                       {"why", s.why}});
    rows.push_back({s.server, std::string{word_of(s.now)},
                    std::to_string(s.counter),
                    std::to_string(ms_of(s.wait_left)), s.why});
  }
  return out.done({{"servers", std::move(servers)}}, table(rows, {2, 3}));
}

int admit_servers(const redlock_arguments& a, const output& out) {
  auto target = target_of(a);
  auto floor = floor_of(a);
  if (!target || !floor) {
    return out.failed(target ? floor.error() : target.error());
  }
  if (auto ok = redlock_admit(target->servers, *floor, target->options); !ok) {
    return out.failed(ok.error());
  }
  return show_cluster(a, out);
}

int change_cluster(const redlock_arguments& a, const output& out) {
  auto from = target_of(a);
  auto to = target_of("--to", a.to);
  auto floor = floor_of(a);
  if (!from || !to || !floor) {
    return out.failed(!from ? from.error() : !to ? to.error() : floor.error());
  }
  if (from->options.name_space != to->options.name_space) {
    return out.failed(fail(errc::invalid_argument,
                           "--to: must have the name space of --locks"));
  }
  redlock_change_options how;
  how.floor = *floor;
  how.progress = [&](std::string_view step) { out.note(step); };
  auto done = redlock_change(from->servers, to->servers, how, to->options);
  if (!done) {
    return out.failed(done.error());
  }
  std::string left;
  for (const auto& s : done->left_open) {
    left += fmt::format("not closed, as it was not there: {}\n", s);
  }
  return out.done(
      {{"servers", to->servers.size()},
       {"floor", std::to_string(done->floor)},
       {"left_open", done->left_open}},
      fmt::format("{} servers belong together now; give --to as --locks from "
                  "now on\n{}",
                  to->servers.size(), left));
}

using action = int (*)(const redlock_arguments&, const output&);

CLI::App* add_verb(CLI::App& to, invocation& call,
                   const std::shared_ptr<redlock_arguments>& a, action act,
                   const char* name, const char* what) {
  CLI::App* c = to.add_subcommand(name, what);
  c->add_option("--locks", a->locks, "redlock://H1:P1,H2:P2,..., in one order")
      ->required();
  add_json(*c, call);
  c->callback([a, act, &call] {
    call.action = [a, act, &call] { return act(*a, output{call.json}); };
  });
  return c;
}

}  // namespace

void add_redlock(CLI::App& root, invocation& call) {
  auto a = std::make_shared<redlock_arguments>();
  CLI::App* c = root.add_subcommand(
      "redlock", "Set up and look at the servers of a Redlock cluster");
  c->require_subcommand(1);
  auto* init = add_verb(*c, call, a, init_cluster, "init",
                        "Make blank servers belong together, once");
  init->add_option("--max-ttl", a->max_ttl,
                   "The longest TTL ever, and the wait of a server that "
                   "forgot; 60s unless told");
  init->add_option("--floor", a->floor,
                   "Tokens begin above it: the stores' highest mark, when "
                   "these servers replace others");
  init->add_flag("--durable", a->durable,
                 "The servers lose nothing in a crash (appendfsync always); "
                 "checked");
  add_verb(*c, call, a, show_cluster, "status",
           "Show each server: admitted, quarantined, unreachable, foreign, "
           "closed");
  add_verb(*c, call, a, admit_servers, "admit",
           "Wait one max TTL and readmit servers that forgot")
      ->add_option("--floor", a->floor,
                   "The stores' highest mark; needed when too few servers "
                   "remember");
  auto* change =
      add_verb(*c, call, a, change_cluster, "change",
               "Add, remove, replace or reorder servers; again after a crash");
  change
      ->add_option("--to", a->to,
                   "redlock://H1:P1,H2:P2,...: the servers from now on; those "
                   "that are new must be blank")
      ->required();
  change->add_option("--floor", a->floor,
                     "The stores' highest mark; needed when too few old "
                     "servers remember, and these are gone for good");
}

}  // namespace lastdoor::cli

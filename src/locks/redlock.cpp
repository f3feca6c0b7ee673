// Opening and setting up. Options and URLs are checked here, before any
// traffic.
#include <fmt/format.h>

#include <algorithm>
#include <lastdoor/locks/redlock.hpp>
#include <set>

#include "embedded_redis_scripts.hpp"
#include "redlock_backend.hpp"
#include "redlock_setup.hpp"

namespace lastdoor {

namespace driver = redis_driver;
namespace scripts = detail::redis_scripts;
using redlock::number_of;
using redlock::server;
using redlock::servers;
using redlock::sight;

namespace redlock {

error silent(const servers& all, const std::vector<sight>& found) {
  std::string why;
  for (const auto& s : found) {
    if (!s.answered) {
      why += why.empty() ? "" : "; ";
      why += s.why.text();
    }
  }
  return fail(errc::unavailable,
              fmt::format("all {} servers must answer ({})", all.n(), why));
}

std::string damaged_counter(const servers& all) {
  return fmt::format(
      "the counter '{}' is not a positive number; delete it, and the server is "
      "readmitted like one that forgot",
      all.names().counter);
}

// "yes" and "always": nothing is answered before it is on the disk.
result<void> check_durable(driver::session& in, server& s, time_point until) {
  for (const auto& [name, wanted] :
       {std::pair{"appendonly", "yes"}, std::pair{"appendfsync", "always"}}) {
    const auto asked = s.node->send(in, {"CONFIG", "GET", name});
    if (in.wait_for_answer(asked, until) != driver::fate::replied) {
      return driver::overdue("asking how durable a server is");
    }
    if (asked->answer().is_error()) {
      return driver::refused(in, *s.node, asked->answer(),
                             "asking how durable a server is");
    }
    if (asked->answer()[1].text() != wanted) {
      return fail(errc::misconfigured,
                  fmt::format("{}: durable needs '{} {}'", s.node->name(), name,
                              wanted));
    }
  }
  return {};
}

std::int64_t number_of(const std::string& counter) {
  std::int64_t value = 0;
  for (const char c : counter) {
    if (c < '0' || c > '9' || value > redlock::highest_value) {
      return 0;
    }
    value = value * 10 + (c - '0');
  }
  return value;
}

}  // namespace redlock

namespace {

constexpr std::string_view scheme = "redlock://";

result<void> check_blank(servers& all, const std::vector<sight>& found) {
  std::set<std::string> seen;
  for (unsigned k = 0; k < all.n(); ++k) {
    const auto& s = found[k];
    if (!s.answered) {
      return redlock::silent(all, found);
    }
    const auto& name = all.at(k).node->name();
    if (!seen.insert(s.identity).second) {
      return fail(
          errc::invalid_argument,
          fmt::format("{} leads to a server that was named before", name));
    }
    if (!s.marker.empty() || !s.counter.empty()) {
      return fail(errc::misconfigured,
                  fmt::format("{} was used before; see 'lastdoor redlock "
                              "status'",
                              name));
    }
  }
  return {};
}

// Who belongs together, from any marker there is.
result<void> adopt(servers& all, const std::vector<sight>& found) {
  for (unsigned k = 0; k < all.n(); ++k) {
    const auto m = redlock::marker::parse(found[k].marker);
    if (!m || all.foreign(all.at(k), found[k].marker)) {
      continue;
    }
    if (!all.known()) {
      all.set_known(m->of);
    }
  }
  if (!all.known()) {
    return fail(errc::misconfigured,
                "no server that answers remembers the cluster: run 'lastdoor "
                "redlock init', with the stores' highest mark as floor");
  }
  return {};
}

// Begins the quarantine of one server, or finds out that it has none.
result<void> note(servers& all, driver::session& in, server& s,
                  time_point until) {
  const auto mine = all.marker_of(s);
  driver::script_call call{scripts::redlock_note,
                           {all.names().marker, all.names().note},
                           {mine, all.fresh_note()}};
  call.send(in, *s.node);
  if (call.finish(in, until) != driver::fate::replied) {
    return driver::overdue("looking at a server");
  }
  if (call.answer().is_error()) {
    return driver::refused(in, *s.node, call.answer(), "looking at a server");
  }
  if (call.answer()[0].text() == "admitted") {
    all.note_admitted(s);
    return {};
  }
  return all.note_forgot(s, call.answer()[1].text(), call.answer()[2].text());
}

redlock_node_status status_of(servers& all, driver::session& in, server& s,
                              const sight& seen, time_point until) {
  using condition = redlock_node_status::condition;
  redlock_node_status out;
  out.server = s.node->name();
  if (!seen.answered) {
    out.why = seen.why.text();
    return out;
  }
  out.counter = number_of(seen.counter);
  const bool no_number = !seen.counter.empty() && out.counter < 1;
  if (auto wrong = all.foreign(s, seen.marker)) {
    out.now = redlock::closed::parse(seen.marker) ? condition::closed
                                                  : condition::foreign;
    out.why = wrong->text();
    return out;
  }
  if (!all.known()) {
    out.now = condition::quarantined;
    out.why = "blank: see 'lastdoor redlock init'";
    return out;
  }
  if (no_number) {
    out.now = condition::foreign;
    out.why = redlock::damaged_counter(all);
    return out;
  }
  if (auto ok = note(all, in, s, until); !ok) {
    out.why = ok.error().text();
    return out;
  }
  if (!s.quarantined && seen.counter.empty()) {
    out.now = condition::quarantined;
    out.why = "its counter is gone, as the next vote will find out";
    out.wait_left = std::chrono::milliseconds{all.known()->max_ttl_ms};
    return out;
  }
  if (!s.quarantined) {
    out.now = condition::admitted;
    return out;
  }
  out.now = condition::quarantined;
  out.why = s.found.empty() ? "it has forgotten everything"
                            : "it was restarted or replaced";
  if (!all.may_admit(s)) {
    out.why +=
        "; only those who name the servers as they were set up may admit it";
  }
  out.wait_left = all.wait_left(s);
  return out;
}

}  // namespace

result<std::vector<std::string>> redlock_servers(std::string_view url) {
  const auto refuse = [](std::string_view why) {
    return fail(errc::invalid_argument,
                fmt::format("not redlock://host:port,host:port,...: {}", why));
  };
  if (!url.starts_with(scheme)) {
    return refuse("the scheme is another");
  }
  url.remove_prefix(scheme.size());
  const auto slash = std::min(url.rfind('/'), url.size());
  const auto tail = url.substr(slash);
  url = url.substr(0, slash);
  std::string login;
  if (const auto at = url.rfind('@'); at != std::string_view::npos) {
    login = url.substr(0, at + 1);
    if (login.find(',') != std::string::npos) {
      return refuse("there is one login for all; a comma in it is %2C");
    }
    url.remove_prefix(at + 1);
  }
  std::vector<std::string> out;
  for (;;) {
    const auto comma = std::min(url.find(','), url.size());
    if (comma == 0) {
      return refuse("a server is missing");
    }
    out.push_back(
        fmt::format("redis://{}{}{}", login, url.substr(0, comma), tail));
    if (comma == url.size()) {
      return out;
    }
    url.remove_prefix(comma + 1);
  }
}

result<std::unique_ptr<lock_backend>> open_redlock_backend(
    std::span<const std::string> urls, const redlock_options& options) {
  auto all = servers::open(urls, options);
  if (!all) {
    return all.error();
  }
  auto source = source_name::parse("redlock/" + options.name_space);
  if (!source) {
    return source.error();
  }
  std::vector<std::unique_ptr<redis_wakeups>> wakeups;
  for (const auto& url : urls) {
    auto node = driver::server_options(url, options.call_timeout, options.tls);
    if (!node) {
      return node.error();
    }
    wakeups.push_back(
        std::make_unique<redis_wakeups>(options.service.time, *node));
  }
  return std::unique_ptr<lock_backend>{std::make_unique<redlock_backend>(
      std::move(*all), std::move(*source), std::move(wakeups))};
}

result<lock_service> open_redlock(std::span<const std::string> urls,
                                  const redlock_options& options) {
  auto backend = open_redlock_backend(urls, options);
  if (!backend) {
    return backend.error();
  }
  return lock_service{std::move(*backend), options.service};
}

result<lock_service> open_redlock(std::string_view url,
                                  const redlock_options& options) {
  auto urls = redlock_servers(url);
  if (!urls) {
    return urls.error();
  }
  return open_redlock(*urls, options);
}

result<void> redlock_init(std::span<const std::string> urls,
                          const redlock_init_options& init,
                          const redlock_options& options) {
  if (init.max_ttl < std::chrono::milliseconds{1} ||
      init.max_ttl > std::chrono::hours{1}) {
    return fail(errc::invalid_argument, "max_ttl is 1 ms to 1 h");
  }
  auto all = servers::open(urls, options);
  if (!all) {
    return all.error();
  }
  driver::session in{(*all)->loop()};
  const auto until = (*all)->now() + options.call_timeout;
  const auto found = (*all)->look(in, until, true);
  if (auto ok = check_blank(**all, found); !ok) {
    return ok;
  }
  auto id = owner_id::generate();
  if (!id) {
    return id.error();
  }
  (*all)->set_known(
      {id->str(), (*all)->n(),
       std::chrono::ceil<std::chrono::milliseconds>(init.max_ttl).count(),
       init.durable, (*all)->digest()});
  const auto value =
      std::max<std::int64_t>(1, redlock::value_below(init.floor));
  for (unsigned k = 0; init.durable && k < (*all)->n(); ++k) {
    if (auto ok = redlock::check_durable(in, (*all)->at(k), until); !ok) {
      return ok;
    }
  }
  // One after the other: of two who do this at once, one fails at the first.
  for (unsigned k = 0; k < (*all)->n(); ++k) {
    auto& s = (*all)->at(k);
    s.identity = s.node->identity();
    s.note = found[k].note;
    if (auto ok = (*all)->admit(in, s, value, until); !ok) {
      return k == 0 && ok.code() == errc::unavailable
                 ? fail(errc::misconfigured,
                        "somebody else is setting the servers up")
                 : ok.error();
    }
  }
  return {};
}

result<void> redlock_init(std::string_view url,
                          const redlock_init_options& init,
                          const redlock_options& options) {
  auto urls = redlock_servers(url);
  if (!urls) {
    return urls.error();
  }
  return redlock_init(*urls, init, options);
}

result<std::vector<redlock_node_status>> redlock_status(
    std::span<const std::string> urls, const redlock_options& options) {
  auto all = servers::open(urls, options);
  if (!all) {
    return all.error();
  }
  driver::session in{(*all)->loop()};
  const auto until = (*all)->now() + options.call_timeout;
  const auto found = (*all)->look(in, until, true);
  adopt(**all, found).ignore();
  std::vector<redlock_node_status> out;
  for (unsigned k = 0; k < (*all)->n(); ++k) {
    // The look may have waited for one that is silent.
    out.push_back(status_of(**all, in, (*all)->at(k), found[k],
                            (*all)->now() + options.call_timeout));
  }
  return out;
}

result<void> redlock_admit(std::span<const std::string> urls,
                           std::optional<mark> floor,
                           const redlock_options& options) {
  auto all = servers::open(urls, options);
  if (!all) {
    return all.error();
  }
  driver::session in{(*all)->loop()};
  // Anew for each step: one that is silent uses it up.
  const auto soon = [&] { return (*all)->now() + options.call_timeout; };
  const auto found = (*all)->look(in, soon(), true);
  if (auto ok = adopt(**all, found); !ok) {
    return ok;
  }
  duration wait{0};
  std::int64_t value = floor ? redlock::value_below(*floor) : 0;
  for (unsigned k = 0; k < (*all)->n(); ++k) {
    auto& s = (*all)->at(k);
    if (!found[k].answered) {
      continue;
    }
    if (!found[k].counter.empty() && number_of(found[k].counter) < 1) {
      return fail(errc::damaged, fmt::format("{}: {}", s.node->name(),
                                             redlock::damaged_counter(**all)));
    }
    if (auto ok = note(**all, in, s, soon()); !ok) {
      return ok;
    }
    value = std::max(value, floor ? number_of(found[k].counter) : 0);
    wait = std::max(wait, (*all)->wait_left(s));
  }
  in.wait([] { return false; }, (*all)->now() + wait);
  auto highest = (*all)->highest_counter(in, soon());
  if (!highest && !floor) {
    return highest.error();
  }
  value = std::max(value, highest.value_or(0));
  for (unsigned k = 0; k < (*all)->n(); ++k) {
    auto& s = (*all)->at(k);
    if (!s.quarantined) {
      continue;
    }
    if (auto ok = driver::connect(in, *s.node, soon()); !ok) {
      return ok;
    }
    if (auto ok =
            (*all)->admit(in, s, std::max<std::int64_t>(1, value), soon());
        !ok) {
      return ok;
    }
  }
  return {};
}

}  // namespace lastdoor

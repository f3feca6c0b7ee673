#include "redlock_servers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "embedded_redis_scripts.hpp"

namespace lastdoor::redlock {

namespace driver = redis_driver;
namespace scripts = detail::redis_scripts;
using condition = driver::node::condition;

namespace {

// More unanswered commands than this: the server is suspected and not asked.
constexpr std::size_t most_unanswered = 1024;
// A readmission that fails is not tried with every call.
constexpr duration tend_pause = std::chrono::milliseconds{100};

std::string place_text(const server& s) {
  return fmt::format("{} (place {})", s.node->name(), s.place);
}

// The name of a server, as it stands in every URL that leads there.
std::string address_of(const driver::endpoint& e) {
  if (!e.path.empty()) {
    return fmt::format("{}?db={}", e.path, e.db);
  }
  std::string host = e.host;
  for (char& c : host) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return fmt::format("{}:{}/{}", host, e.port, e.db);
}

// What this client's clock may run faster than the others', and resolution.
duration with_drift(duration d) {
  return d + d / 100 + std::chrono::milliseconds{2};
}

}  // namespace

servers::servers(std::unique_ptr<driver::loop> where, redlock_options options)
    : loop_{std::move(where)},
      options_{std::move(options)},
      names_{options_.name_space} {}

result<std::unique_ptr<servers>> servers::open(
    std::span<const std::string> urls, const redlock_options& options) {
  if (urls.empty() || urls.size() > most_servers) {
    return fail(errc::invalid_argument,
                fmt::format("a cluster has 1 to {} servers, not {}",
                            most_servers, urls.size()));
  }
  if (auto ok = driver::check_name_space(options.name_space); !ok) {
    return ok.error();
  }
  for (const auto limit : {options.call_timeout, options.node_timeout}) {
    if (auto ok = driver::check_timeout(limit); !ok) {
      return ok.error();
    }
  }
  if (options.least_validity < duration{0}) {
    return fail(errc::invalid_argument, "least_validity is not negative");
  }
  auto loop = driver::loop::open(options.service.time);
  if (!loop) {
    return loop.error();
  }
  std::unique_ptr<servers> made{new servers{std::move(*loop), options}};
  auto note = owner_id::generate();
  if (!note) {
    return note.error();
  }
  made->fresh_note_ = note->str();
  std::set<std::string> seen;
  std::vector<std::string> addresses;
  for (const auto& url : urls) {
    auto node = driver::server_options(url, options.call_timeout, options.tls);
    if (!node) {
      return node.error();
    }
    auto& where = node->where;
    if (!seen.insert(where.path.empty()
                         ? fmt::format("{}:{}", where.host, where.port)
                         : where.path)
             .second) {
      return fail(errc::invalid_argument,
                  fmt::format("{} is named twice", where.shown()));
    }
    node->most_unanswered = most_unanswered;
    server one;
    one.place = made->n();
    one.address = address_of(where);
    addresses.push_back(one.address);
    one.node = &made->loop_->add(std::move(*node));
    made->all_.push_back(std::move(one));
  }
  made->digest_ = names_digest(addresses);
  return made;
}

void servers::know_memory(server& s) const {
  const auto& identity = s.node->identity();
  if (s.own_marker.empty() || s.own_marker_for != identity) {
    s.own_marker =
        known_ ? marker{*known_, s.place, identity}.text() : "unknown";
    s.own_marker_for = identity;
    s.vote = std::make_shared<driver::script_head>(
        driver::script_head{&scripts::redlock_acquire,
                            {names_.counter, names_.marker, names_.note},
                            {s.own_marker}});
    s.release = std::make_shared<driver::script_head>(
        driver::script_head{&scripts::redlock_release,
                            {names_.counter, names_.marker},
                            {s.own_marker}});
  }
}

const std::string& servers::marker_of(server& s) const {
  know_memory(s);
  return s.own_marker;
}

driver::script_call servers::vote_call(
    server& s, std::shared_ptr<const driver::script_part> own) const {
  know_memory(s);
  return driver::script_call{s.vote, std::move(own)};
}

driver::script_call servers::release_call(
    server& s, std::shared_ptr<const driver::script_part> own) const {
  know_memory(s);
  return driver::script_call{s.release, std::move(own)};
}

std::shared_ptr<const driver::script_part> servers::release_part(
    const std::string& resource, const std::string& owner,
    std::int64_t value) const {
  const auto lock = names_.lock(resource);
  const auto channel = names_.channel(resource);
  const auto number = std::to_string(value);
  return std::make_shared<driver::script_part>(
      driver::script_part{{lock}, {owner, channel, number}});
}

void servers::set_known(cluster c) {
  known_ = std::move(c);
  for (auto& s : all_) {
    s.own_marker.clear();
  }
}

std::vector<sight> servers::look(driver::session& in, time_point until,
                                 bool all) {
  round asking{*this, in};
  asking.ask_all([this](server& /*s*/) {
    return driver::script_call{scripts::redlock_look,
                               {names_.counter, names_.marker, names_.note},
                               {}};
  });
  // On first contact the others get a little longer, so that a server of
  // another cluster is seen before it can matter.
  auto others_until = time_point::max();
  const auto enough = [&] {
    unsigned good = 0;
    for (unsigned k = 0; k < n() && !all; ++k) {
      good += asking.of(k) == round::state::answered &&
                      marker::parse(asking.answer(k)[0].text())
                  ? 1U
                  : 0U;
    }
    if (good >= q() && others_until == time_point::max()) {
      others_until = now() + options_.node_timeout;
    }
    return now() >= others_until;
  };
  asking.run(enough, until);
  std::vector<sight> found(n());
  for (unsigned k = 0; k < n(); ++k) {
    auto& s = found[k];
    if (asking.of(k) == round::state::answered) {
      const auto answer = asking.answer(k);
      s.answered = true;
      s.marker = answer[0].text();
      s.counter = answer[1].text();
      s.note = answer[2].text();
      s.identity = at(k).node->identity();
    } else {
      s.why = asking.settled(k)
                  ? asking.why(k)
                  : fail(errc::unavailable, fmt::format("{}: no answer in time",
                                                        at(k).node->name()));
    }
  }
  return found;
}

bool servers::may_admit(const server& s) const {
  const auto m = marker::parse(s.found);
  return known_ && ((m && m->of == *known_) || known_->names == digest_);
}

std::optional<error> servers::foreign(const server& s,
                                      std::string_view found) const {
  if (found.empty()) {
    return std::nullopt;
  }
  if (const auto c = closed::parse(found)) {
    if (c->to.names == digest_ ||
        (c->stays && known_ && known_->id == c->to.id)) {
      return fail(errc::no_quorum,
                  fmt::format("{}: not opened yet; 'lastdoor redlock change' "
                              "finishes the change of the servers",
                              place_text(s)));
    }
    return fail(errc::misconfigured,
                fmt::format("{}: closed, as the servers of the cluster were "
                            "changed: name the new ones in the URL",
                            place_text(s)));
  }
  const auto m = marker::parse(found);
  if (!m) {
    return fail(errc::misconfigured,
                fmt::format("{}: the key '{}' is damaged; delete it, and the "
                            "server is readmitted like one that forgot",
                            place_text(s), names_.marker));
  }
  if (m->of.n != n()) {
    return fail(errc::misconfigured,
                fmt::format("{}: the server belongs to a cluster of {}, not "
                            "of {}; were the servers changed, name the new "
                            "ones",
                            place_text(s), m->of.n, n()));
  }
  if (m->place != s.place) {
    return fail(errc::misconfigured,
                fmt::format("{}: the server has place {}; name all servers "
                            "in the order in which they were set up or "
                            "changed",
                            place_text(s), m->place));
  }
  if (known_ && m->of != *known_) {
    return fail(errc::misconfigured,
                fmt::format("{}: the server belongs to another cluster; were "
                            "the servers changed, name the new ones and open "
                            "anew",
                            place_text(s)));
  }
  return std::nullopt;
}

result<void> servers::learn(driver::session& in, time_point until) {
  if (known_) {
    return {};
  }
  const auto found = look(in, until, false);
  std::optional<cluster> agreed;
  unsigned members = 0;
  unsigned answered = 0;
  std::string silent;
  std::optional<error> moved;
  std::string left_by;  // the cluster that left a server out
  for (unsigned k = 0; k < n(); ++k) {
    const auto& s = found[k];
    if (!s.answered) {
      silent += silent.empty() ? "" : "; ";
      silent += s.why.text();
      continue;
    }
    ++answered;
    const auto m = marker::parse(s.marker);
    if (!m) {
      if (const auto c = closed::parse(s.marker)) {
        moved = foreign(at(k), s.marker);
        left_by = c->stays ? left_by : c->to.id;
      }
      continue;
    }
    if (auto wrong = foreign(at(k), s.marker)) {
      return *wrong;
    }
    if (agreed && *agreed != m->of) {
      return fail(errc::misconfigured,
                  fmt::format("{}: the server belongs to another cluster than "
                              "those before it",
                              place_text(at(k))));
    }
    agreed = m->of;
    ++members;
  }
  // An old list, most of whose servers have the same places in the new one.
  if (agreed && agreed->id == left_by) {
    return *moved;
  }
  if (members >= blocking(n())) {
    set_known(std::move(*agreed));
    return {};
  }
  if (moved) {
    return *moved;
  }
  if (answered >= q()) {
    return fail(errc::misconfigured,
                members == 0
                    ? "the servers are blank: run 'lastdoor redlock init', "
                      "with the stores' highest mark as floor if they "
                      "replace others"
                    : "too few servers remember that they belong together: "
                      "see 'lastdoor redlock admit --floor'");
  }
  return fail(errc::no_quorum, fmt::format("{} of {} servers answer ({})",
                                           answered, n(), silent));
}

result<void> servers::note_forgot(server& s, std::string_view found,
                                  std::string_view note) {
  if (auto wrong = foreign(s, found)) {
    return *wrong;
  }
  const auto& identity = s.node->identity();
  if (s.quarantined && s.identity == identity && s.note == note &&
      s.found == found) {
    return {};
  }
  const auto m = marker::parse(found);
  s.quarantined = true;
  s.identity = identity;
  s.note = note;
  s.found = found;
  s.durable = m && m->of.durable;
  // Read after the answer: the wait must not be too short.
  s.since = now();
  return {};
}

duration servers::wait_left(const server& s) const {
  if (!s.quarantined || s.durable) {
    return duration{0};
  }
  const duration all =
      with_drift(std::chrono::milliseconds{known_ ? known_->max_ttl_ms : 0});
  return std::max(duration{0}, s.since + all - now());
}

result<std::int64_t> servers::highest_counter(driver::session& in,
                                              time_point until) {
  // Who is silent is not waited for: so many are enough.
  const auto sights = look(in, until, false);
  std::int64_t highest = 0;
  unsigned read = 0;
  for (unsigned k = 0; k < n(); ++k) {
    const auto& s = sights[k];
    if (!s.answered || s.marker != marker_of(at(k))) {
      continue;
    }
    std::int64_t value = 0;
    std::from_chars(s.counter.data(), s.counter.data() + s.counter.size(),
                    value);
    if (s.counter.empty() || s.counter == "?") {
      continue;  // it has lost its counter, and with it its say
    }
    highest = std::max(highest, value);
    ++read;
  }
  if (read < blocking(n())) {
    std::string why;
    for (const auto& s : sights) {
      if (!s.answered) {
        why += (why.empty() ? "; " : ", ") + s.why.text();
      }
    }
    return fail(errc::no_quorum,
                fmt::format("{} servers must tell how far the tokens have "
                            "come, and {} can: start the others, or, if they "
                            "have forgotten or are gone for good, give the "
                            "stores' highest mark to 'lastdoor redlock admit "
                            "--floor'{}",
                            blocking(n()), read, why));
  }
  return highest;
}

result<void> servers::admit(driver::session& in, server& s, std::int64_t value,
                            time_point until) {
  if (!may_admit(s)) {
    return fail(errc::misconfigured,
                fmt::format("{}: blank, and the servers are not named here as "
                            "they were set up: it may be a stranger",
                            place_text(s)));
  }
  driver::script_call call{
      scripts::redlock_admit,
      {names_.counter, names_.marker, names_.note},
      {marker_of(s), s.found, s.note, std::to_string(value)}};
  if (s.node->identity() != s.identity) {
    return fail(errc::unavailable, "the server has forgotten again");
  }
  call.send(in, *s.node);
  if (call.finish(in, until) != driver::fate::replied) {
    return driver::overdue("admitting a server");  // twice is as good as once
  }
  if (call.answer().is_error()) {
    return driver::refused(in, *s.node, call.answer(), "admitting a server");
  }
  const auto verdict = call.answer()[0].text();
  if (verdict == "admitted" || verdict == "known") {
    note_admitted(s);
    return {};
  }
  if (verdict == "damaged") {
    return fail(errc::damaged,
                fmt::format("{}: its counter or its marker is no text of ours",
                            place_text(s)));
  }
  s.quarantined = false;  // the next call begins the wait anew
  return fail(errc::unavailable, "the server has forgotten again");
}

void servers::tend(driver::session& in, time_point until) {
  if (tending_ || now() < tend_again_at_) {
    return;
  }
  const auto due = [&](const server& s) {
    return s.quarantined && s.node->now() == condition::ready && may_admit(s) &&
           wait_left(s) == duration{0};
  };
  if (std::none_of(all_.begin(), all_.end(), due)) {
    return;
  }
  tending_ = true;
  // What lost nothing needs nobody to tell it how far the tokens have come.
  for (auto& s : all_) {
    if (s.durable && due(s)) {
      admit(in, s, 1, until).ignore();
    }
  }
  if (std::none_of(all_.begin(), all_.end(), due)) {
    tending_ = false;
    return;
  }
  const auto value = highest_counter(in, until);
  for (auto& s : all_) {
    if (value && due(s)) {
      admit(in, s, *value, until).ignore();
    }
  }
  tending_ = false;
  tend_again_at_ = now() + tend_pause;
}

}  // namespace lastdoor::redlock

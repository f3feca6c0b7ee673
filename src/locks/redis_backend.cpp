#include "redis_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "embedded_redis_scripts.hpp"
#include "redis_lock_value.hpp"

namespace lastdoor {

namespace driver = redis_driver;
namespace scripts = detail::redis_scripts;
using driver::fate;
using driver::overdue;

namespace {

constexpr duration longest_ttl = std::chrono::hours{24 * 30};
constexpr std::size_t longest_holder = 256;
// Beyond these the oldest are let go: their TTL ends them as well.
constexpr std::size_t most_strays = 1024;
constexpr std::size_t most_doubted = 4096;
constexpr duration doubt_lasts = std::chrono::hours{1};
// A memory that is lost again and again is nothing to build on.
constexpr unsigned most_rebases = 3;

result<void> check_ttl(duration ttl) {
  if (ttl < std::chrono::milliseconds{1} || ttl > longest_ttl) {
    return fail(errc::invalid_argument, "a TTL is 1 ms to 30 days");
  }
  return {};
}

// Rounded up: the server must not end a lease before its holder does, and 0
// would delete it.
std::string ttl_text(duration ttl) {
  return std::to_string(
      std::chrono::ceil<std::chrono::milliseconds>(ttl).count());
}

// What the server's clock may run faster than ours, and its resolution.
duration drift(duration ttl) {
  return ttl / 100 + std::chrono::milliseconds{2};
}

error damaged(const redis_keys& keys) {
  return fail(errc::damaged,
              fmt::format("the counter '{}' is not a positive number; tokens "
                          "cannot be drawn until it is set above every mark",
                          keys.counter()));
}

error exhausted() {
  return fail(errc::token_exhausted, "the counter is at its end");
}

error foreign(std::string_view key) {
  return fail(errc::misconfigured,
              fmt::format("the key '{}' holds something that lastdoor did not "
                          "put there",
                          key));
}

}  // namespace

redis_backend::redis_backend(std::unique_ptr<driver::loop> where,
                             const driver::node_options& server,
                             source_name source,
                             const redis_locks_options& options)
    : loop_{std::move(where)},
      node_{loop_->add(server)},
      source_{std::move(source)},
      keys_{options.name_space},
      wakeups_{options.service.time, server},
      call_timeout_{options.call_timeout},
      replica_timeout_{options.replica_timeout},
      wait_replicas_{options.wait_replicas} {}

duration redis_backend::max_ttl() const noexcept { return longest_ttl; }

result<void> redis_backend::connect(driver::session& in, time_point until) {
  auto ok = driver::connect(in, node_, until);
  if (ok) {
    send_strays(in);
  }
  return ok;
}

result<driver::reply_view> redis_backend::insist(driver::session& in,
                                                 driver::script_call& call,
                                                 std::string_view doing,
                                                 time_point until,
                                                 bool& sent_before) {
  driver::insistence trying{in, node_, doing, until};
  auto answer = trying.first([&] { send_strays(in); }).run(call);
  sent_before = trying.sent_before();
  return answer;
}

// ---- acquire

result<lease_answer> redis_backend::try_acquire(const lease_request& request) {
  if (auto ok = check_ttl(request.ttl); !ok) {
    return ok.error().about(request.resource.str());
  }
  driver::session in{*loop_};
  if (loop_->now() >= request.deadline) {
    return overdue("acquiring").about(request.resource.str());
  }
  attempt now{request, keys_.lock(request.resource.str()), {}};
  for (;;) {
    auto got = attempt_once(in, now);
    if (!got) {
      return got.error().about(request.resource.str());
    }
    if (*got) {
      return **got;
    }
    if (loop_->now() >= request.deadline) {
      return overdue("acquiring").about(request.resource.str());
    }
  }
}

result<std::optional<lease_answer>> redis_backend::attempt_once(
    driver::session& in, attempt& now) {
  const auto& request = now.request;
  if (auto ok = connect(in, request.deadline); !ok) {
    return ok.error();
  }
  now.start = loop_->now();
  now.known = highest_;
  driver::script_call call{
      scripts::redis_acquire,
      {now.key, keys_.counter(), keys_.marker()},
      {request.owner.str(), ttl_text(request.ttl),
       std::string_view{request.holder}.substr(0, longest_holder),
       node_.identity()}};
  call.send(in, node_);
  switch (call.finish(in, request.deadline)) {
    case fate::replied:
      return judge(in, now, call.answer());
    case fate::not_sent:
      if (node_.now() == driver::node::condition::ready) {
        return overdue("acquiring");
      }
      return std::optional<lease_answer>{};
    case fate::pending:
    case fate::unknown:
      break;
  }
  const bool undone = undo(in, now);
  return fail(errc::in_doubt,
              undone ? "sent, but the answer is lost; the lease, if it was "
                       "granted, has been released"
                     : "sent, but the answer is lost; the lease, if it was "
                       "granted, will be released or run out");
}

result<std::optional<lease_answer>> redis_backend::judge(
    driver::session& in, attempt& now, driver::reply_view answer) {
  if (answer.is_error()) {
    return driver::refused(in, node_, answer, "acquiring");
  }
  const auto verdict = answer[0].text();
  if (verdict == "granted") {
    return granted(in, now, answer[1].integer());
  }
  if (verdict == "busy") {
    const auto value = parse_value(answer[2].text());
    if (!value) {
      return foreign(now.key);
    }
    const auto left = std::max<std::int64_t>(answer[1].integer(), 0);
    return fail(errc::busy, fmt::format("held by '{}'", value->holder))
        .retry_after_ms(left);
  }
  if (verdict == "forgot") {
    if (now.rebased++ == most_rebases) {
      return fail(errc::unavailable,
                  "the server forgets its counter again and again");
    }
    if (auto ok = rebase(in, now.request.deadline); !ok) {
      return ok.error();
    }
    return std::optional<lease_answer>{};
  }
  if (verdict == "foreign") {
    return foreign(now.key);
  }
  if (verdict == "damaged") {
    return damaged(keys_);
  }
  if (verdict == "exhausted") {
    return exhausted();
  }
  return fail(errc::internal, "the acquire script gave an unknown answer");
}

result<std::optional<lease_answer>> redis_backend::granted(
    driver::session& in, attempt& now, std::int64_t number) {
  const auto token = fencing_token::from(number);
  if (!token || number <= now.known) {
    // Somebody set the counter back by hand: the marker cannot tell.
    if (!undo(in, now)) {
      return fail(errc::unavailable,
                  "the counter went back; the grant is being undone");
    }
    if (auto ok = rebase(in, now.request.deadline); !ok) {
      return ok.error();
    }
    return std::optional<lease_answer>{};
  }
  highest_ = std::max(highest_, number);
  if (wait_replicas_ > 0) {
    if (auto ok = confirm_by_replicas(in, now); !ok) {
      return ok.error();
    }
  }
  const auto ttl = now.request.ttl;
  return std::optional{lease_answer{*token, now.start + ttl - drift(ttl)}};
}

result<void> redis_backend::confirm_by_replicas(driver::session& in,
                                                const attempt& now) {
  const auto until =
      std::min(loop_->now() + replica_timeout_, now.request.deadline);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::max(until - loop_->now(), duration{std::chrono::milliseconds{1}}));
  const auto asked = node_.send(in, {"WAIT", std::to_string(wait_replicas_),
                                     std::to_string(left.count())});
  in.wait_for_answer(asked, now.request.deadline);
  const bool answered = asked->state() == fate::replied;
  if (answered && asked->answer().integer() >= wait_replicas_) {
    return {};
  }
  const auto text =
      answered && !asked->answer().is_error()
          ? fmt::format("only {} of {} replicas confirmed the grant",
                        asked->answer().integer(), wait_replicas_)
          : std::string{"the replicas' answer is not known"};
  if (undo(in, now)) {
    return fail(errc::unavailable, text + "; it was undone");
  }
  return fail(errc::in_doubt, text + "; it is being undone");
}

result<void> redis_backend::rebase(driver::session& in, time_point until) {
  constexpr std::string_view doing =
      "raising the counter of a server that "
      "may have forgotten it";
  // Read again: the connection may be older than the change.
  const auto server = node_.send(in, {"INFO", "server"});
  const auto replication = node_.send(in, {"INFO", "replication"});
  in.wait_for_answer(replication, until);
  if (server->state() != fate::replied ||
      replication->state() != fate::replied) {
    return overdue(doing);
  }
  for (const auto& t : {server, replication}) {
    if (t->answer().is_error()) {
      return driver::refused(in, node_, t->answer(), doing);
    }
  }
  if (auto ok = node_.learn_identity(server->answer(), replication->answer());
      !ok) {
    node_.drop(in, ok.error());
    return ok.error();
  }
  driver::script_call call{scripts::redis_rebase,
                           {keys_.counter(), keys_.marker()},
                           {node_.identity(), std::to_string(highest_)}};
  call.send(in, node_);
  if (call.finish(in, until) != fate::replied) {
    return overdue(doing);  // twice is as good as once
  }
  if (call.answer().is_error()) {
    return driver::refused(in, node_, call.answer(), doing);
  }
  const auto verdict = call.answer()[0].text();
  if (verdict == "damaged") {
    return damaged(keys_);
  }
  if (verdict == "exhausted") {
    return exhausted();
  }
  return {};
}

// ---- what lost answers leave behind

bool redis_backend::undo(driver::session& in, const attempt& now) {
  const auto& request = now.request;
  const auto owner = request.owner.str();
  remember_stray({now.key, keys_.channel(request.resource.str()), owner,
                  loop_->now() + request.ttl + call_timeout_, nullptr});
  const auto gone = [&] {
    return std::none_of(strays_.begin(), strays_.end(),
                        [&](const stray& s) { return s.owner == owner; });
  };
  for (;;) {
    // Sends it; on a connection that is still there, behind the acquire.
    if (!connect(in, request.deadline)) {
      return false;
    }
    const auto generation = node_.generation();
    in.wait(
        [&] {
          forget_finished_strays();
          return gone() || node_.generation() != generation;
        },
        request.deadline);
    if (gone()) {
      return true;
    }
    if (loop_->now() >= request.deadline) {
      return false;
    }
  }
}

void redis_backend::remember_stray(stray one) {
  if (strays_.size() >= most_strays) {
    strays_.erase(strays_.begin());
  }
  strays_.push_back(std::move(one));
}

void redis_backend::remember_doubt(const std::string& owner, time_point until) {
  const auto now = loop_->now();
  std::erase_if(doubted_, [&](const auto& d) { return d.second <= now; });
  if (doubted_.size() >= most_doubted) {
    doubted_.clear();
  }
  doubted_[owner] = until;
}

void redis_backend::forget_finished_strays() {
  const auto now = loop_->now();
  const auto over = [&](const stray& s) {
    return s.until <= now ||
           (s.sent != nullptr && s.sent->state() == fate::replied &&
            !s.sent->answer().is_error());
  };
  strays_.erase(std::remove_if(strays_.begin(), strays_.end(), over),
                strays_.end());
}

void redis_backend::send_strays(driver::session& in) {
  if (strays_.empty()) {
    return;
  }
  forget_finished_strays();
  for (auto& s : strays_) {
    if (s.sent == nullptr || s.sent->settled()) {
      driver::script_call call{
          scripts::redis_release, {s.key}, {s.owner, s.channel}};
      // By its text: nobody is there to hear that the hash is unknown.
      call.by_text().send(in, node_);
      s.sent = call.sent();
    }
  }
}

// ---- renew, release, the rest

result<time_point> redis_backend::renew(const grant& held, duration ttl,
                                        time_point deadline) {
  const auto& resource = held.resource().str();
  if (auto ok = check_ttl(ttl); !ok) {
    return ok.error().about(resource);
  }
  driver::session in{*loop_};
  const auto start = loop_->now();
  driver::script_call call{scripts::redis_renew,
                           {keys_.lock(resource)},
                           {held.owner().str(), ttl_text(ttl)}};
  bool sent_before = false;
  const auto answer = insist(in, call, "renewing", deadline, sent_before);
  if (!answer) {
    return error{answer.error()}.about(resource);
  }
  if (answer->integer() != 1) {
    return fail(errc::not_owner, "the lease is gone or another's")
        .about(resource)
        .presented(held.token().value());
  }
  return start + ttl - drift(ttl);
}

result<void> redis_backend::release(const grant& held, time_point deadline) {
  const auto& resource = held.resource().str();
  const auto& owner = held.owner().str();
  const auto key = keys_.lock(resource);
  const auto channel = keys_.channel(resource);
  driver::session in{*loop_};
  driver::script_call call{scripts::redis_release, {key}, {owner, channel}};
  bool sent_before = false;
  const auto answer = insist(in, call, "releasing", deadline, sent_before);
  const auto until = loop_->now() + doubt_lasts;
  if (sent_before) {
    remember_doubt(owner, until);
  }
  if (!answer) {
    if (sent_before) {
      remember_stray({key, channel, owner, until, nullptr});
    }
    return error{answer.error()}.about(resource);
  }
  if (answer->integer() == 1) {
    released_[next_released_++ % released_.size()] = owner;
    return {};
  }
  // Sent before and not answered: what ended the lease was that, or its TTL.
  // Answered before: the resource may have moved on since.
  const bool free = answer->integer() == 0;
  if (sent_before || doubted_.count(owner) != 0 ||
      (free && std::find(released_.begin(), released_.end(), owner) !=
                   released_.end())) {
    return {};
  }
  return fail(errc::not_owner, "the lease is gone or another's")
      .about(resource)
      .presented(held.token().value());
}

result<lease_status> redis_backend::inspect(const resource_name& resource) {
  driver::session in{*loop_};
  const auto key = keys_.lock(resource.str());
  driver::script_call call{scripts::redis_inspect, {key}, {}};
  bool sent_before = false;
  const auto answer =
      insist(in, call, "inspecting", loop_->now() + call_timeout_, sent_before);
  if (!answer) {
    auto why = answer.error();
    // Looking changes nothing, so there is nothing to be in doubt about.
    return (why.code() == errc::in_doubt
                ? fail(errc::unavailable, why.text()).backend(why.backend())
                : why)
        .about(resource.str());
  }
  lease_status status;
  if ((*answer)[0].is_nil()) {
    return status;
  }
  const auto value = parse_value((*answer)[0].text());
  if (!value) {
    return foreign(key).about(resource.str());
  }
  status.held = true;
  status.holder = value->holder;
  if (auto last = mark::from_store(value->token); last) {
    status.last_token = *last;
  }
  status.remaining = std::chrono::milliseconds{
      std::max<std::int64_t>((*answer)[1].integer(), 0)};
  return status;
}

std::shared_ptr<void> redis_backend::watch(const resource_name& resource,
                                           alarm& bell) {
  return wakeups_.watch(keys_.channel(resource.str()), bell);
}

result<void> redis_backend::raise_floor(mark floor) {
  driver::session in{*loop_};
  driver::script_call call{
      scripts::redis_raise, {keys_.counter()}, {std::to_string(floor.value())}};
  bool sent_before = false;
  const auto answer = insist(in, call, "raising the floor",
                             loop_->now() + call_timeout_, sent_before);
  if (!answer) {
    return answer.error();
  }
  if ((*answer)[0].text() == "damaged") {
    return damaged(keys_);
  }
  highest_ = std::max(highest_, floor.value());
  return {};
}

}  // namespace lastdoor

// What was left behind on a server. See redlock_servers.hpp.
#include "embedded_redis_scripts.hpp"
#include "redlock_servers.hpp"

namespace lastdoor::redlock {

namespace driver = redis_driver;
namespace scripts = detail::redis_scripts;
using condition = driver::node::condition;

namespace {

// Beyond these the oldest are let go: their TTL ends them as well.
constexpr std::size_t most_strays = 1024;

bool is_answered(const stray& one) {
  return one.sent != nullptr && one.sent->state() == driver::fate::replied;
}

// Heard, and done; or refused to a user who could not have set it either.
bool is_over(const stray& one, time_point moment) {
  if (one.until <= moment || !is_answered(one)) {
    return one.until <= moment;
  }
  const auto answer = one.sent->answer();
  return !answer.is_error() || (driver::error_word(answer.text()) == "NOPERM" &&
                                !one.sent->refused_together());
}

}  // namespace

void servers::add_stray(server& s, stray one) {
  const auto moment = now();
  while (!s.strays.empty() && (s.strays.size() >= most_strays ||
                               is_over(s.strays.front(), moment))) {
    s.strays.pop_front();
  }
  s.strays.push_back(std::move(one));
}

void servers::send_strays(driver::session& in, server& s) {
  if (s.strays.empty() || s.node->now() != condition::ready) {
    return;
  }
  const auto moment = now();
  std::erase_if(s.strays,
                [&](const stray& one) { return is_over(one, moment); });
  for (auto& one : s.strays) {
    if (one.sent == nullptr || one.sent->settled()) {
      // By its text: nobody is there to hear that the hash is unknown.
      auto call = release_call(s, release_part(one.resource, one.owner, 0));
      if (is_answered(one)) {
        call.alone();
      }
      call.by_text().send(in, *s.node);
      one.sent = call.sent();
    }
  }
}

// A release is often not waited for, and nobody would hear that the server
// does not know its hash.
void servers::greet(driver::session& in, server& s) {
  if (s.greeted != s.node->generation()) {
    s.greeted = s.node->generation();
    s.node->send(in, {"SCRIPT", "LOAD", scripts::redlock_release.text});
  } else if (s.strays.empty() || (s.strays.front().sent != nullptr &&
                                  !s.strays.front().sent->settled())) {
    // A server that is silent has many, all of them on their way: they are
    // not looked through with every call.
    return;
  }
  send_strays(in, s);
}

}  // namespace lastdoor::redlock

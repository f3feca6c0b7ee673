// acquire: take a lock and leave it held, for scripts that release it later.
#include <fmt/format.h>

#include <lastdoor/lock_service.hpp>
#include <memory>
#include <optional>

#include "cli/backends.hpp"
#include "cli/commands.hpp"
#include "cli/durations.hpp"
#include "cli/output.hpp"
#include "cli/run/signals.hpp"
#include "fencing/text.hpp"

namespace lastdoor::cli {

namespace {

struct acquire_arguments {
  std::string locks, resource, ttl{"10s"}, wait{"0s"}, holder;
};

result<acquire_options> options_of(const acquire_arguments& a) {
  auto ttl = parse_duration("--ttl", a.ttl);
  if (!ttl) {
    return ttl.error();
  }
  auto wait = parse_duration("--wait", a.wait);
  if (!wait) {
    return wait.error();
  }
  acquire_options o;
  o.ttl = *ttl;
  o.wait_at_most = *wait;
  o.holder = a.holder;
  o.renew = false;  // nobody would be there to do it
  return o;
}

json to_json(const grant& g, duration left) {
  return json{{"resource", g.resource().str()},
              {"token", g.token().to_string()},
              {"owner", g.owner().str()},
              {"source", g.source().str()},
              {"valid_for_ms", whole_ms(left)}};
}

std::string to_text(const grant& g, duration left) {
  return fmt::format(
      "resource  {}\ntoken     {}\nowner     {}\nsource    {}\n"
      "valid for {} ms\n",
      printable(g.resource().str()), g.token().to_string(), g.owner().str(),
      g.source().str(), whole_ms(left));
}

// Nobody learnt the owner value, so nobody else could release it.
int take_back(lease& held, const output& out) {
  const bool freed = held.release().has_value();
  return out.failed(
      fail(freed ? errc::unavailable : errc::in_doubt,
           freed ? "the answer could not be written to stdout, so the lock "
                   "was given back"
                 : "the answer could not be written to stdout, and the lock "
                   "may stay held until its TTL is over")
          .about(held.grant().resource().str()));
}

int acquire_and_leave(const acquire_arguments& a, const output& out) {
  auto options = options_of(a);
  if (!options) {
    return out.failed(options.error());
  }
  if (!output::has_reader()) {
    return out.failed(fail(errc::invalid_argument,
                           "stdout is closed, so nobody would learn the owner "
                           "value that release needs"));
  }
  auto inbox = signal_inbox::open({SIGINT, SIGTERM, SIGHUP, SIGQUIT});
  if (!inbox) {
    return out.failed(inbox.error());
  }
  auto locks = open_locks(a.locks);
  if (!locks) {
    return out.failed(locks.error());
  }
  std::optional<result<lease>> held;
  const auto interrupted = inbox->until_done([&](std::stop_token stop) {
    options->stop = std::move(stop);
    held.emplace(locks->acquire(a.resource, *options));
  });
  if (interrupted) {
    // Granted in the same moment or not: nothing stays behind.
    held.reset();
    return out.failed(interrupted_by(*interrupted, a.resource));
  }
  if (!*held) {
    return out.failed(held->error());
  }
  const grant g = (*held)->grant();
  const duration left = (*held)->remaining();
  if (!output::write(out.as_json() ? dump(to_json(g, left)) + '\n'
                                   : to_text(g, left))) {
    return take_back(**held, out);
  }
  std::move(**held).orphan();
  return 0;
}

}  // namespace

void add_acquire(CLI::App& root, invocation& call) {
  auto a = std::make_shared<acquire_arguments>();
  CLI::App* c = root.add_subcommand(
      "acquire", "Take a lock and leave it held until its TTL is over");
  add_locks(*c, a->locks)->required();
  add_resource(*c, a->resource)->required();
  c->add_option("--ttl", a->ttl, "How long the lock lives (10s)");
  c->add_option("--wait", a->wait, "How long to wait while it is held (0s)");
  c->add_option("--holder", a->holder, "Shown to those who find it held");
  add_json(*c, call);
  c->callback([a, &call] {
    call.action = [a, &call] {
      return acquire_and_leave(*a, output{call.json});
    };
  });
}

}  // namespace lastdoor::cli

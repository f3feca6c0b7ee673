// release: give back what acquire, or a run that was killed, left held.
#include <fmt/format.h>

#include <lastdoor/lock_service.hpp>
#include <memory>

#include "cli/backends.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"

namespace lastdoor::cli {

namespace {

struct release_arguments {
  std::string locks, resource, owner, token;
};

result<grant> grant_of(const release_arguments& a, lock_service& locks) {
  auto resource = resource_name::parse(a.resource);
  if (!resource) {
    return resource.error();
  }
  auto owner = owner_id::parse(a.owner);
  if (!owner) {
    return owner.error();
  }
  if (!a.token.empty()) {
    auto token = fencing_token::parse(a.token);
    if (!token) {
      return token.error();
    }
    return grant{*resource, *owner, *token, locks.source(), time_point::max()};
  }
  // The owner alone proves whose the lease is; the token is looked up so that
  // it can be told which one was released.
  auto seen = locks.inspect(a.resource);
  if (!seen) {
    return seen.error();
  }
  auto token = fencing_token::from(seen->last_token.value());
  if (!token) {
    return fail(errc::not_owner, "it was never granted").about(a.resource);
  }
  return grant{*resource, *owner, *token, locks.source(), time_point::max()};
}

int act(const release_arguments& a, const output& out) {
  auto locks = open_existing_locks(a.locks);
  if (!locks) {
    return out.failed(locks.error());
  }
  auto held = grant_of(a, *locks);
  if (!held) {
    return out.failed(held.error());
  }
  if (auto ok = locks->release(*held); !ok) {
    return out.failed(ok.error());
  }
  return out.done({{"resource", a.resource},
                   {"token", held->token().to_string()},
                   {"released", true}},
                  fmt::format("released  {}\ntoken     {}\n", a.resource,
                              held->token().to_string()));
}

}  // namespace

void add_release(CLI::App& root, invocation& call) {
  auto a = std::make_shared<release_arguments>();
  CLI::App* c = root.add_subcommand(
      "release", "Release a lock by the owner that acquire printed");
  add_locks(*c, a->locks)->required();
  add_resource(*c, a->resource)->required();
  c->add_option("--owner", a->owner, "The owner that acquire printed")
      ->required();
  c->add_option("--token", a->token, "The token, to be told of a mismatch");
  add_json(*c, call);
  c->callback([a, &call] {
    call.action = [a, &call] { return act(*a, output{call.json}); };
  });
}

}  // namespace lastdoor::cli

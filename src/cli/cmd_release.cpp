// release: give back what acquire, or a run that was killed, left held.
#include <fmt/format.h>

#include <algorithm>
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

struct lease_to_free {
  grant held;
  bool token_known;
};

result<lease_to_free> lease_of(const release_arguments& a,
                               lock_service& locks) {
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
    return lease_to_free{
        {*resource, *owner, *token, locks.source(), time_point::max()}, true};
  }
  // The owner alone proves whose the lease is; the token is looked up so that
  // it can be told which one was released. Not every service knows it: then
  // the lowest stands for it.
  auto seen = locks.inspect(a.resource);
  if (!seen) {
    return seen.error();
  }
  const auto token = fencing_token::from(
      std::max<std::int64_t>(seen->last_token.value(), fencing_token::min));
  return lease_to_free{
      {*resource, *owner, *token, locks.source(), time_point::max()},
      !seen->last_token.none()};
}

int act(const release_arguments& a, const output& out) {
  auto locks = open_existing_locks(a.locks);
  if (!locks) {
    return out.failed(locks.error());
  }
  auto found = lease_of(a, *locks);
  if (!found) {
    return out.failed(found.error());
  }
  if (auto ok = locks->release(found->held); !ok) {
    return out.failed(ok.error());
  }
  json answer{{"resource", a.resource}, {"released", true}};
  auto text = fmt::format("released  {}\n", a.resource);
  if (found->token_known) {
    const auto token = found->held.token().to_string();
    answer["token"] = token;
    text += fmt::format("token     {}\n", token);
  }
  return out.done(answer, text);
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

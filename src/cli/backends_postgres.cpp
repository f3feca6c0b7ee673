// postgresql://..., as libpq takes it
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/stores/postgres.hpp>

#include "cli/backend_parts.hpp"
#include "cli/redact.hpp"
#include "drivers/postgres.hpp"

namespace lastdoor::cli {

namespace {

// Takes "namespace=NAME" out of the parameters, which are libpq's otherwise.
// False: it is there and empty.
bool take_name_space(backend_url& u) {
  constexpr std::string_view name = "namespace=";
  const auto query = u.path.find('?');
  if (query == std::string::npos) {
    return true;
  }
  std::string rest;
  bool sane = true;
  for (auto at = query + 1; at <= u.path.size();) {
    const auto end = std::min(u.path.find('&', at), u.path.size());
    const auto part = std::string_view{u.path}.substr(at, end - at);
    if (part.starts_with(name)) {
      u.name_space = part.substr(name.size());
      sane = !u.name_space.empty();
    } else {
      rest += rest.empty() ? '?' : '&';
      rest += part;
    }
    at = end + 1;
  }
  u.path.resize(query);
  u.path += rest;
  return sane;
}

result<backend_url> check(std::string_view option, std::string_view url,
                          backend_url u) {
  u.path = url;
  if (!take_name_space(u)) {
    return refuse_url(option, url, "has an empty namespace");
  }
  if (!postgres_driver::parse_endpoint(u.path)) {
    return refuse_url(option, url,
                      "is no Postgres URL; write postgresql://USER@HOST/"
                      "DATABASE, and %40 for an @ in a password");
  }
  return u;
}

result<lock_service> locks(const backend_url& u, lock_service_options options) {
  postgres_locks_options o;
  o.service = std::move(options);
  if (!u.name_space.empty()) {
    o.name_space = u.name_space;
  }
  return open_postgres_locks(u.path, o);
}

result<std::unique_ptr<store>> open_database(const backend_url& u) {
  auto s = open_postgres_store(u.path);
  if (!s) {
    return s.error();
  }
  return std::unique_ptr<store>{
      std::make_unique<postgres_store>(std::move(*s))};
}

// One transaction for all would hold the table's strongest lock during the
// scan. But a guard that is replaced must not be missing in between; the
// statements about triggers come last in a plan.
std::string script(const fence_plan& plan) {
  std::string out = "SET lock_timeout = '100ms';  -- repeat what times out\n";
  bool together = false;
  for (const std::string& s : plan.statements) {
    if (!together &&
        (s.starts_with("DROP TRIGGER") || s.starts_with("CREATE TRIGGER"))) {
      out += "BEGIN;\n";
      together = true;
    }
    out += as_line(s);
  }
  return out + (together ? "COMMIT;\n" : "") + "RESET lock_timeout;\n";
}

constexpr migrate_verbs verbs{postgres::migrate_up,
                              postgres::migrate_down,
                              postgres::migrate_status,
                              postgres::migrate_verify,
                              postgres::plan_fence,
                              postgres::add_fence,
                              script};

result<std::unique_ptr<migrator>> migrations(const backend_url& u) {
  return make_migrator(verbs, u.path, redacted(u.path));
}

}  // namespace

const backend postgres_backend{check, locks, open_database, migrations};

}  // namespace lastdoor::cli

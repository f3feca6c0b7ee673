// sqlite:PATH
#include <lastdoor/locks/sqlite.hpp>
#include <lastdoor/stores/sqlite.hpp>

#include "cli/backend_parts.hpp"

namespace lastdoor::cli {

namespace {

// "?namespace=NAME" at the end. Any other '?' belongs to the path.
void split_name_space(backend_url& u) {
  constexpr std::string_view parameter = "?namespace=";
  const auto at = u.path.rfind(parameter);
  if (at != std::string::npos) {
    u.name_space = u.path.substr(at + parameter.size());
    u.path.resize(at);
  }
}

result<backend_url> check(std::string_view option, std::string_view url,
                          backend_url u) {
  const bool wants_name_space =
      url.find("?namespace=") != std::string_view::npos;
  split_name_space(u);
  if (u.path.empty()) {
    return refuse_url(option, url, "names no file; write sqlite:PATH");
  }
  if (u.path.starts_with("//") && !u.path.starts_with("///")) {
    return refuse_url(option, url,
                      "looks like a host name; write sqlite:PATH or "
                      "sqlite:/absolute/PATH");
  }
  if (u.path == ":memory:") {
    return refuse_url(option, url, "would be gone when the tool ends");
  }
  if (wants_name_space && u.name_space.empty()) {
    return refuse_url(option, url, "has an empty namespace");
  }
  return u;
}

result<lock_service> locks(const backend_url& u, lock_service_options options) {
  sqlite_locks_options o;
  o.service = std::move(options);
  if (!u.name_space.empty()) {
    o.name_space = u.name_space;
  }
  return open_sqlite_locks(u.path, o);
}

result<std::unique_ptr<store>> open_file(const backend_url& u) {
  auto s = open_sqlite_store(u.path);
  if (!s) {
    return s.error();
  }
  return std::unique_ptr<store>{std::make_unique<sqlite_store>(std::move(*s))};
}

std::string script(const fence_plan& plan) {
  std::string out = "BEGIN IMMEDIATE;\n";
  for (const std::string& s : plan.statements) {
    out += as_line(s);
  }
  return out + "COMMIT;\n";
}

constexpr migrate_verbs verbs{sqlite::migrate_up,
                              sqlite::migrate_down,
                              sqlite::migrate_status,
                              sqlite::migrate_verify,
                              sqlite::plan_fence,
                              sqlite::add_fence,
                              script};

result<std::unique_ptr<migrator>> migrations(const backend_url& u) {
  return make_migrator(verbs, u.path, u.path);
}

}  // namespace

const backend sqlite_backend{check, locks, open_file, migrations};

}  // namespace lastdoor::cli

#include "cli/backends.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/redact.hpp"

#if LASTDOOR_CLI_SQLITE
#include <lastdoor/locks/sqlite.hpp>
#include <lastdoor/stores/sqlite.hpp>
#endif

namespace lastdoor::cli {

namespace {

constexpr std::string_view known_elsewhere[] = {"redis", "redlock",
                                                "postgresql", "postgres"};

error refuse(std::string_view option, std::string_view url,
             std::string_view why) {
  return fail(errc::invalid_argument,
              fmt::format("{}: '{}' {}", option, shown_url(url), why));
}

// "?namespace=NAME" at the end. Any other '?' belongs to the path.
void split_name_space(backend_url& u) {
  constexpr std::string_view parameter = "?namespace=";
  const auto at = u.path.rfind(parameter);
  if (at != std::string::npos) {
    u.name_space = u.path.substr(at + parameter.size());
    u.path.resize(at);
  }
}

result<backend_url> check_sqlite(std::string_view option, std::string_view url,
                                 backend_url u) {
  const bool wants_name_space =
      url.find("?namespace=") != std::string_view::npos;
  if (u.path.empty()) {
    return refuse(option, url, "names no file; write sqlite:PATH");
  }
  if (u.path.starts_with("//") && !u.path.starts_with("///")) {
    return refuse(option, url,
                  "looks like a host name; write sqlite:PATH or "
                  "sqlite:/absolute/PATH");
  }
  if (u.path == ":memory:") {
    return refuse(option, url, "would be gone when the tool ends");
  }
  if (wants_name_space && u.name_space.empty()) {
    return refuse(option, url, "has an empty namespace");
  }
#if LASTDOOR_CLI_SQLITE
  return u;
#else
  return refuse(option, url, "needs SQLite, which is not built in");
#endif
}

}  // namespace

result<backend_url> parse_url(std::string_view option, std::string_view url) {
  const auto colon = url.find(':');
  if (colon == std::string_view::npos || colon == 0) {
    return refuse(option, url, "is no URL; write for example sqlite:PATH");
  }
  backend_url u{std::string{url.substr(0, colon)},
                std::string{url.substr(colon + 1)},
                {}};
  if (u.scheme == "sqlite") {
    split_name_space(u);
    return check_sqlite(option, url, std::move(u));
  }
  const bool elsewhere =
      std::find(std::begin(known_elsewhere), std::end(known_elsewhere),
                u.scheme) != std::end(known_elsewhere);
  if (elsewhere) {
    return refuse(
        option, url,
        fmt::format("needs the back end {}, which is not built in", u.scheme));
  }
  return refuse(option, url, "has an unknown scheme; this tool knows sqlite:");
}

#if LASTDOOR_CLI_SQLITE

namespace {

class sqlite_migrator final : public migrator {
 public:
  explicit sqlite_migrator(std::string path) : path_{std::move(path)} {}
  const std::string& name() const noexcept override { return path_; }
  result<std::vector<int>> up() override { return sqlite::migrate_up(path_); }
  result<std::vector<int>> down(int to, bool discard_marks) override {
    return sqlite::migrate_down(path_, to, discard_marks);
  }
  result<std::vector<migration_status>> status() override {
    return sqlite::migrate_status(path_);
  }
  result<std::vector<std::string>> verify() override {
    return sqlite::migrate_verify(path_);
  }
  result<fence_plan> plan(const fence_request& r) override {
    return sqlite::plan_fence(path_, r);
  }
  result<fence_plan> apply(const fence_request& r) override {
    return sqlite::add_fence(path_, r);
  }
  std::string script(const fence_plan& plan) const override;

 private:
  std::string path_;
};

std::string as_comment(std::string_view note) {
  std::string out = "-- ";
  for (const char c : note) {
    out += c;
    if (c == '\n') {
      out += "-- ";
    }
  }
  return out + '\n';
}

std::string sqlite_migrator::script(const fence_plan& plan) const {
  std::string out;
  for (const std::string& note : plan.notes) {
    out += as_comment(note);
  }
  if (plan.statements.empty()) {
    return out + "-- nothing to do\n";
  }
  out += "BEGIN IMMEDIATE;\n";
  for (const std::string& s : plan.statements) {
    const auto last = s.find_last_not_of(" \t\n");
    out += s.substr(0, last + 1);
    out += last != std::string::npos && s[last] == ';' ? "\n" : ";\n";
  }
  return out + "COMMIT;\n";
}

}  // namespace

result<lock_service> open_locks(std::string_view url,
                                lock_service_options options) {
  auto u = parse_url("--locks", url);
  if (!u) {
    return u.error();
  }
  sqlite_locks_options o;
  o.service = std::move(options);
  if (!u->name_space.empty()) {
    o.name_space = u->name_space;
  }
  return open_sqlite_locks(u->path, o);
}

result<std::unique_ptr<store>> open_store(std::string_view url) {
  auto u = parse_url("--store", url);
  if (!u) {
    return u.error();
  }
  if (!u->name_space.empty()) {
    return refuse("--store", url, "names a namespace; a store has none");
  }
  auto s = open_sqlite_store(u->path);
  if (!s) {
    return s.error();
  }
  return std::unique_ptr<store>{std::make_unique<sqlite_store>(std::move(*s))};
}

result<std::unique_ptr<migrator>> open_migrator(std::string_view url) {
  auto u = parse_url("--store", url);
  if (!u) {
    return u.error();
  }
  if (!u->name_space.empty()) {
    return refuse("--store", url, "names a namespace; a store has none");
  }
  return std::unique_ptr<migrator>{std::make_unique<sqlite_migrator>(u->path)};
}

#else

result<lock_service> open_locks(std::string_view url, lock_service_options) {
  return parse_url("--locks", url).error();
}

result<std::unique_ptr<store>> open_store(std::string_view url) {
  return parse_url("--store", url).error();
}

result<std::unique_ptr<migrator>> open_migrator(std::string_view url) {
  return parse_url("--store", url).error();
}

#endif

result<lock_service> open_existing_locks(std::string_view url) {
  auto u = parse_url("--locks", url);
  if (!u) {
    return u.error();
  }
  std::error_code ec;
  if (u->scheme == "sqlite" && !std::filesystem::exists(u->path, ec)) {
    return fail(errc::missing, fmt::format("there is no file '{}'", u->path));
  }
  return open_locks(url);
}

}  // namespace lastdoor::cli

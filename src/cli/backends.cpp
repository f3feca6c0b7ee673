#include "cli/backends.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "cli/backend_parts.hpp"
#include "cli/redact.hpp"

namespace lastdoor::cli {

namespace {

struct known_scheme {
  std::string_view name;
  const backend* provider;  // null: not built in
};

constexpr known_scheme schemes[] = {
#if LASTDOOR_CLI_SQLITE
    {"sqlite", &sqlite_backend},
#else
    {"sqlite", nullptr},
#endif
#if LASTDOOR_CLI_POSTGRES
    {"postgresql", &postgres_backend}, {"postgres", &postgres_backend},
#else
    {"postgresql", nullptr}, {"postgres", nullptr},
#endif
#if LASTDOOR_CLI_REDIS
    {"redis", &redis_backend},         {"rediss", &redis_backend},
    {"redis+unix", &redis_backend},    {"redlock", &redlock_backend},
#else
    {"redis", nullptr},      {"rediss", nullptr},
    {"redis+unix", nullptr}, {"redlock", nullptr},
#endif
};

const known_scheme* find_scheme(std::string_view name) {
  const auto* const at =
      std::find_if(std::begin(schemes), std::end(schemes),
                   [&](const known_scheme& s) { return s.name == name; });
  return at == std::end(schemes) ? nullptr : at;
}

// A store and a migrator have no token source of their own.
result<backend_url> parse_store_url(std::string_view url) {
  auto u = parse_url("--store", url);
  if (u && find_scheme(u->scheme)->provider->open_store == nullptr) {
    return refuse_url("--store", url, "is a lock service and keeps no data");
  }
  if (u && !u->name_space.empty() &&
      !find_scheme(u->scheme)->provider->store_has_name_space) {
    return refuse_url("--store", url, "names a namespace; a store has none");
  }
  return u;
}

class free_functions final : public migrator {
 public:
  free_functions(const migrate_verbs& verbs, std::string where,
                 std::string name)
      : verbs_{verbs}, where_{std::move(where)}, name_{std::move(name)} {}
  const std::string& name() const noexcept override { return name_; }
  result<std::vector<int>> up() override { return verbs_.up(where_); }
  result<std::vector<int>> down(int to, bool discard_marks) override {
    return verbs_.down(where_, to, discard_marks);
  }
  result<std::vector<migration_status>> status() override {
    return verbs_.status(where_);
  }
  result<std::vector<std::string>> verify() override {
    return verbs_.verify(where_);
  }
  result<fence_plan> plan(const fence_request& r) override {
    return verbs_.plan(where_, r);
  }
  result<fence_plan> apply(const fence_request& r) override {
    return verbs_.apply(where_, r);
  }
  std::string script(const fence_plan& plan) const override {
    const auto notes = notes_as_comments(plan);
    return plan.statements.empty() ? notes + "-- nothing to do\n"
                                   : notes + verbs_.script(plan);
  }

 private:
  const migrate_verbs& verbs_;
  std::string where_;
  std::string name_;
};

}  // namespace

error refuse_url(std::string_view option, std::string_view url,
                 std::string_view why) {
  return fail(errc::invalid_argument,
              fmt::format("{}: '{}' {}", option, shown_url(url), why));
}

std::string notes_as_comments(const fence_plan& plan) {
  std::string out;
  for (const std::string& note : plan.notes) {
    out += "-- ";
    for (const char c : note) {
      out += c;
      if (c == '\n') {
        out += "-- ";
      }
    }
    out += '\n';
  }
  return out;
}

std::string as_line(std::string_view statement) {
  const auto last = statement.find_last_not_of(" \t\n");
  std::string out{statement.substr(0, last + 1)};
  return out += !out.empty() && out.back() == ';' ? "\n" : ";\n";
}

std::unique_ptr<migrator> make_migrator(const migrate_verbs& verbs,
                                        std::string where, std::string name) {
  return std::make_unique<free_functions>(verbs, std::move(where),
                                          std::move(name));
}

result<backend_url> parse_url(std::string_view option, std::string_view url) {
  const auto colon = url.find(':');
  if (colon == std::string_view::npos || colon == 0) {
    return refuse_url(option, url, "is no URL; write for example sqlite:PATH");
  }
  backend_url u{std::string{url.substr(0, colon)},
                std::string{url.substr(colon + 1)},
                {}};
  const auto* const scheme = find_scheme(u.scheme);
  if (scheme == nullptr) {
    return refuse_url(option, url,
                      "has an unknown scheme; this tool knows sqlite:, "
                      "postgresql:, redis: and redlock:");
  }
  if (scheme->provider == nullptr) {
    return refuse_url(
        option, url,
        fmt::format("needs the back end {}, which is not built in", u.scheme));
  }
  return scheme->provider->check(option, url, std::move(u));
}

result<lock_service> open_locks(std::string_view url,
                                lock_service_options options) {
  auto u = parse_url("--locks", url);
  if (!u) {
    return u.error();
  }
  return find_scheme(u->scheme)->provider->open_locks(*u, std::move(options));
}

result<std::unique_ptr<store>> open_store(std::string_view url) {
  auto u = parse_store_url(url);
  if (!u) {
    return u.error();
  }
  return find_scheme(u->scheme)->provider->open_store(*u);
}

result<std::unique_ptr<migrator>> open_migrator(std::string_view url) {
  auto u = parse_store_url(url);
  if (!u) {
    return u.error();
  }
  return find_scheme(u->scheme)->provider->open_migrator(*u);
}

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

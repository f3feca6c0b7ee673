// redis://, rediss:// and redis+unix://
#include <fmt/format.h>

#include <lastdoor/locks/redis.hpp>
#include <lastdoor/stores/redis.hpp>
#include <utility>

#include "cli/backend_parts.hpp"
#include "cli/redact.hpp"

namespace lastdoor::cli {

namespace {

redis_store_options store_options_of(const backend_url& u) {
  redis_store_options o;
  if (!u.name_space.empty()) {
    o.name_space = u.name_space;
  }
  return o;
}

class redis_migrator final : public migrator {
 public:
  explicit redis_migrator(const backend_url& u)
      : url_{u.path}, name_{redacted(u.path)}, options_{store_options_of(u)} {}

  const std::string& name() const noexcept override { return name_; }

  result<std::vector<int>> up() override {
    auto made = create_redis_ledger(url_, options_);
    if (!made) {
      return made.error();
    }
    return *made ? std::vector<int>{1} : std::vector<int>{};
  }

  result<std::vector<int>> down(int /*to*/, bool /*discard_marks*/) override {
    return fail(errc::invalid_argument,
                fmt::format("the ledger is one key; who wants old tokens to "
                            "pass deletes lastdoor:{{{}}}:ledger by hand",
                            options_.name_space));
  }

  result<std::vector<migration_status>> status() override {
    auto there = ledger_is_there();
    if (!there) {
      return there.error();
    }
    return std::vector<migration_status>{{1, "ledger", *there, true}};
  }

  result<std::vector<std::string>> verify() override {
    auto there = ledger_is_there();
    if (!there) {
      return there.error();
    }
    return *there ? std::vector<std::string>{}
                  : std::vector<std::string>{"there is no ledger"};
  }

  result<fence_plan> plan(const fence_request& /*r*/) override {
    return no_tables();
  }
  result<fence_plan> apply(const fence_request& /*r*/) override {
    return no_tables();
  }
  std::string script(const fence_plan& /*plan*/) const override { return {}; }

 private:
  static error no_tables() {
    return fail(errc::invalid_argument,
                "Redis has no tables; rows that lastdoor writes there carry "
                "their fence from the first write on");
  }

  result<bool> ledger_is_there() {
    auto store = open_redis_store(url_, options_);
    if (!store) {
      return store.error();
    }
    auto mark = store->read_mark(resource_name::parse("any").value());
    if (!mark && mark.code() != errc::schema_mismatch) {
      return mark.error();
    }
    return mark.has_value();
  }

  std::string url_;
  std::string name_;
  redis_store_options options_;
};

result<backend_url> check(std::string_view option, std::string_view url,
                          backend_url u) {
  u.path = url;
  // The last parameter, behind "?" or, of a socket with a "?db=", "&".
  constexpr std::string_view parameter = "namespace=";
  const auto at = u.path.rfind(parameter);
  if (at != std::string::npos && at > 0 &&
      (u.path[at - 1] == '?' || u.path[at - 1] == '&')) {
    u.name_space = u.path.substr(at + parameter.size());
    u.path.resize(at - 1);
    if (u.name_space.empty()) {
      return refuse_url(option, url, "has an empty namespace");
    }
  }
  // Opening sends nothing and tells what is wrong with the rest.
  redis_locks_options probe;
  if (!u.name_space.empty()) {
    probe.name_space = u.name_space;
  }
  if (auto ok = open_redis_backend(u.path, probe); !ok) {
    return fail(ok.code(), fmt::format("{}: '{}': {}", option, redacted(url),
                                       ok.error().text()));
  }
  return u;
}

result<lock_service> locks(const backend_url& u, lock_service_options options) {
  redis_locks_options o;
  o.service = std::move(options);
  if (!u.name_space.empty()) {
    o.name_space = u.name_space;
  }
  return open_redis_locks(u.path, o);
}

result<std::unique_ptr<store>> open_server(const backend_url& u) {
  auto s = open_redis_store(u.path, store_options_of(u));
  if (!s) {
    return s.error();
  }
  return std::unique_ptr<store>{std::make_unique<redis_store>(std::move(*s))};
}

result<std::unique_ptr<migrator>> migrations(const backend_url& u) {
  return std::unique_ptr<migrator>{std::make_unique<redis_migrator>(u)};
}

}  // namespace

const backend redis_backend{check, locks, open_server, migrations, true};

}  // namespace lastdoor::cli

// redlock://
#include <fmt/format.h>

#include <lastdoor/locks/redlock.hpp>
#include <utility>

#include "cli/backend_parts.hpp"
#include "cli/redact.hpp"

namespace lastdoor::cli {

namespace {

redlock_options redlock_options_of(const backend_url& u) {
  redlock_options o;
  if (!u.name_space.empty()) {
    o.name_space = u.name_space;
  }
  return o;
}

result<backend_url> check_redlock_url(std::string_view option,
                                      std::string_view url, backend_url u) {
  u.path = url;
  constexpr std::string_view parameter = "?namespace=";
  if (const auto at = u.path.rfind(parameter); at != std::string::npos) {
    u.name_space = u.path.substr(at + parameter.size());
    u.path.resize(at);
    if (u.name_space.empty()) {
      return refuse_url(option, url, "has an empty namespace");
    }
  }
  // Opening sends nothing and tells what is wrong with the rest.
  if (auto ok = open_redlock(u.path, redlock_options_of(u)); !ok) {
    return fail(ok.code(), fmt::format("{}: '{}': {}", option, redacted(url),
                                       ok.error().text()));
  }
  return u;
}

result<lock_service> open_redlock_url(const backend_url& u,
                                      lock_service_options options) {
  auto o = redlock_options_of(u);
  o.service = std::move(options);
  return open_redlock(u.path, o);
}

}  // namespace

const backend redlock_backend{check_redlock_url, open_redlock_url, nullptr,
                              nullptr};

}  // namespace lastdoor::cli

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <lastdoor/grant.hpp>

namespace lastdoor {

namespace {

constexpr duration::rep ended = duration::min().count();

result<std::string_view> variable(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') {
    return fail(errc::invalid_argument,
                fmt::format("the environment has no {}", name));
  }
  return std::string_view{text};
}

template <class T>
result<T> parsed(const char* name) {
  return result<T>{variable(name)
                       .and_then([](std::string_view text) {
                         return typename result<T>::base{T::parse(text)};
                       })
                       .map_error([&](const error& e) {
                         return fail(e.code(),
                                     fmt::format("{}: {}", name, e.text()));
                       })};
}

}  // namespace

struct grant::state {
  resource_name resource;
  owner_id owner;
  fencing_token token;
  source_name source;
  // Alone in being mutable: see the invariants in the header.
  mutable std::atomic<duration::rep> valid_until;
};

grant::grant(resource_name resource, owner_id owner, fencing_token token,
             source_name source, time_point valid_until)
    : state_{new state{std::move(resource), std::move(owner), token,
                       std::move(source),
                       valid_until.time_since_epoch().count()}} {}

result<grant> grant::from_environment() {
  auto resource = parsed<resource_name>("LASTDOOR_RESOURCE");
  if (!resource)
    return resource.error();
  auto token = parsed<fencing_token>("LASTDOOR_TOKEN");
  if (!token)
    return token.error();
  auto owner = parsed<owner_id>("LASTDOOR_OWNER");
  if (!owner)
    return owner.error();
  auto source = parsed<source_name>("LASTDOOR_SOURCE");
  if (!source)
    return source.error();
  return grant{std::move(*resource), std::move(*owner), *token,
               std::move(*source), time_point::max()};
}

const resource_name& grant::resource() const noexcept {
  return state_->resource;
}
const owner_id& grant::owner() const noexcept { return state_->owner; }
fencing_token grant::token() const noexcept { return state_->token; }
const source_name& grant::source() const noexcept { return state_->source; }

time_point grant::valid_until() const noexcept {
  return time_point{duration{state_->valid_until.load()}};
}

void grant::extend(time_point valid_until) const noexcept {
  const auto later = valid_until.time_since_epoch().count();
  auto now = state_->valid_until.load();
  while (now != ended && now < later &&
         !state_->valid_until.compare_exchange_weak(now, later)) {
  }
}

void grant::end() const noexcept { state_->valid_until.store(ended); }

}  // namespace lastdoor

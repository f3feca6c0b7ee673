#include <fmt/format.h>

#include <lastdoor/errors.hpp>

#include "text.hpp"

namespace lastdoor {

std::string_view name_of(errc code) noexcept {
  switch (code) {
    case errc::stale_token:
      return "stale_token";
    case errc::busy:
      return "busy";
    case errc::lease_lost:
      return "lease_lost";
    case errc::not_owner:
      return "not_owner";
    case errc::too_slow:
      return "too_slow";
    case errc::in_doubt:
      return "in_doubt";
    case errc::unavailable:
      return "unavailable";
    case errc::no_quorum:
      return "no_quorum";
    case errc::precondition_failed:
      return "precondition_failed";
    case errc::missing:
      return "missing";
    case errc::invalid_argument:
      return "invalid_argument";
    case errc::schema_mismatch:
      return "schema_mismatch";
    case errc::token_regressed:
      return "token_regressed";
    case errc::wrong_source:
      return "wrong_source";
    case errc::token_exhausted:
      return "token_exhausted";
    case errc::damaged:
      return "damaged";
    case errc::misconfigured:
      return "misconfigured";
    case errc::canceled:
      return "canceled";
    case errc::internal:
      return "internal";
  }
  return "unknown";
}

std::string error::message() const {
  std::string line{name_of(code_)};
  if (!resource_.empty()) {
    line += fmt::format(" on '{}'", printable(resource_));
  }
  if (presented_ != 0)
    line += fmt::format(", token {}", presented_);
  if (seen_ != 0)
    line += fmt::format(", mark {}", seen_);
  line += ": ";
  line += printable(text_);
  if (!backend_.empty())
    line += fmt::format(" [{}]", printable(backend_));
  return line;
}

bool error::retryable() const noexcept {
  switch (code_) {
    case errc::busy:
    case errc::too_slow:
    case errc::unavailable:
    case errc::no_quorum:
      return true;
    default:
      return false;
  }
}

bool error::ends_lease() const noexcept {
  switch (code_) {
    case errc::stale_token:
    case errc::lease_lost:
    case errc::not_owner:
    case errc::token_regressed:
    case errc::wrong_source:
      return true;
    default:
      return false;
  }
}

error& error::about(std::string_view resource) {
  resource_ = resource;
  return *this;
}

error& error::presented(std::int64_t token) noexcept {
  presented_ = token;
  return *this;
}

error& error::seen(std::int64_t mark) noexcept {
  seen_ = mark;
  return *this;
}

error& error::backend(std::string_view detail) {
  backend_ = detail;
  return *this;
}

error& error::retry_after_ms(std::int64_t ms) noexcept {
  retry_after_ms_ = ms;
  return *this;
}

}  // namespace lastdoor

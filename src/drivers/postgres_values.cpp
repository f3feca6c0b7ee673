// Parameters and answers of statements, both as text.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "drivers/postgres.hpp"

namespace lastdoor::postgres_driver {

namespace {

std::string real_text(double d) {
  if (std::isnan(d)) {
    return "NaN";
  }
  if (std::isinf(d)) {
    return d > 0 ? "Infinity" : "-Infinity";
  }
  return fmt::format("{}", d);
}

std::string bytea_text(const blob& b) {
  std::string text = "\\x";
  for (const auto byte : b) {
    text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  return text;
}

}  // namespace

arguments& arguments::add(std::int64_t v) {
  items_.emplace_back(std::to_string(v));
  return *this;
}

arguments& arguments::add(std::string_view v) {
  spoiled_ = spoiled_ || v.find('\0') != std::string_view::npos;
  items_.emplace_back(v);
  return *this;
}

arguments& arguments::add(const value& v) {
  if (const auto* i = v.integer()) {
    return add(*i);
  }
  if (const auto* t = v.text()) {
    return add(std::string_view{*t});
  }
  if (const auto* d = v.real()) {
    return add(std::string_view{real_text(*d)});
  }
  if (const auto* b = v.bytes()) {
    return add(std::string_view{bytea_text(*b)});
  }
  return add_null();
}

arguments& arguments::add_null() {
  items_.emplace_back();
  return *this;
}

std::vector<const char*> arguments::pointers() const {
  std::vector<const char*> all;
  all.reserve(items_.size());
  for (const auto& item : items_) {
    all.push_back(item ? item->c_str() : nullptr);
  }
  return all;
}

std::string_view answer::text(int row, int column) const noexcept {
  return {PQgetvalue(result_.get(), row, column),
          static_cast<std::size_t>(PQgetlength(result_.get(), row, column))};
}

std::int64_t answer::integer(int row, int column) const noexcept {
  const auto digits = text(row, column);
  std::int64_t v = 0;
  const auto* const end = digits.data() + digits.size();
  const auto [at, ec] = std::from_chars(digits.data(), end, v);
  return ec == std::errc{} && at == end ? v : 0;
}

std::int64_t answer::changes() const noexcept {
  const std::string_view digits = PQcmdTuples(result_.get());
  std::int64_t v = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), v);
  return v;
}

}  // namespace lastdoor::postgres_driver

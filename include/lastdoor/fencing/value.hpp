// fencing/value.hpp: one SQL value, bound and never spliced into text.
//
// Invariants: text is UTF-8 (checked when a statement is rendered), integers
// are 64-bit, a blob is bytes. There is no implicit narrowing.
//
// Thread safety: values.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lastdoor {

using blob = std::vector<std::byte>;

class value {
 public:
  using variant =
      std::variant<std::nullptr_t, std::int64_t, double, std::string, blob>;

  // NOLINTBEGIN(google-explicit-constructor): literals are meant to convert.
  value(std::nullptr_t = nullptr) noexcept : v_{nullptr} {}
  value(bool b) noexcept : v_{std::int64_t{b ? 1 : 0}} {}
  template <std::signed_integral I>
  value(I i) noexcept : v_{static_cast<std::int64_t>(i)} {}
  template <std::unsigned_integral U>
  requires(sizeof(U) < sizeof(std::int64_t)) value(U u)
  noexcept : v_{static_cast<std::int64_t>(u)} {}
  value(double d) noexcept : v_{d} {}
  value(std::string s) noexcept : v_{std::move(s)} {}
  value(std::string_view s) : v_{std::string{s}} {}
  value(const char* s) : v_{std::string{s}} {}
  value(blob b) noexcept : v_{std::move(b)} {}
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] const variant& raw() const noexcept { return v_; }
  [[nodiscard]] bool is_null() const noexcept {
    return std::holds_alternative<std::nullptr_t>(v_);
  }
  /// The integer, or null when it is something else.
  [[nodiscard]] const std::int64_t* integer() const noexcept {
    return std::get_if<std::int64_t>(&v_);
  }
  [[nodiscard]] const double* real() const noexcept {
    return std::get_if<double>(&v_);
  }
  [[nodiscard]] const std::string* text() const noexcept {
    return std::get_if<std::string>(&v_);
  }
  [[nodiscard]] const blob* bytes() const noexcept {
    return std::get_if<blob>(&v_);
  }
  /// For messages: NULL, 7, 'text' (shortened and escaped), x'0a...'.
  [[nodiscard]] std::string describe() const;

  friend bool operator==(const value&, const value&) = default;

 private:
  variant v_;
};

/// One row as a write returned it: values in the order of `returning`.
using row = std::vector<value>;

}  // namespace lastdoor

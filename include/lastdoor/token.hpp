// token.hpp: the four names a grant is made of, each with its own type.
//
// Invariants
//   - A fencing_token is 1..2^53-1. Zero means "none yet" and is a `mark`
//     only. The upper edge is where Lua numbers and JSON readers stop being
//     exact; at a million grants a second it lasts 285 years.
//   - A resource_name is 1..512 bytes of valid UTF-8 without U+0000
//     (Postgres cannot store it). Bytes are compared as they are: no case
//     folding, no Unicode normalisation.
//   - An owner_id is at least 20 bytes from the kernel's generator, in hex.
//
// No type converts implicitly to another or back to its raw form, so a token
// and an owner cannot be swapped and a raw integer never passes for a token.
//
// Thread safety: values.
#pragma once

#include <compare>
#include <cstdint>
#include <lastdoor/errors.hpp>
#include <string>
#include <string_view>

namespace lastdoor {

/// A positive number that only grows from grant to grant of one service.
class fencing_token {
 public:
  static constexpr std::int64_t min = 1;
  static constexpr std::int64_t max = (std::int64_t{1} << 53) - 1;

  /// `invalid_argument` unless min <= raw <= max.
  [[nodiscard]] static result<fencing_token> from(std::int64_t raw);
  /// Parses plain decimal digits; no sign, no blanks, no leading zero.
  [[nodiscard]] static result<fencing_token> parse(std::string_view digits);

  [[nodiscard]] constexpr std::int64_t value() const noexcept { return raw_; }
  [[nodiscard]] std::string to_string() const { return std::to_string(raw_); }

  friend constexpr auto operator<=>(fencing_token, fencing_token) = default;

 private:
  friend class mark;
  constexpr explicit fencing_token(std::int64_t raw) noexcept : raw_{raw} {}
  std::int64_t raw_;
};

/// The highest token a store has accepted; `mark{}` (0) says "none yet".
class mark {
 public:
  constexpr mark() noexcept = default;
  constexpr explicit mark(fencing_token t) noexcept : raw_{t.value()} {}
  /// `damaged` unless 0 <= raw <= fencing_token::max: for what a store reads.
  [[nodiscard]] static result<mark> from_store(std::int64_t raw);

  [[nodiscard]] constexpr std::int64_t value() const noexcept { return raw_; }
  [[nodiscard]] constexpr bool none() const noexcept { return raw_ == 0; }

  friend constexpr auto operator<=>(mark, mark) = default;

 private:
  std::int64_t raw_{0};
};

/// The name of what is protected, e.g. "inventory/sku-1001".
class resource_name {
 public:
  static constexpr std::size_t max_bytes = 512;

  /// `invalid_argument` for empty, too long, U+0000 or invalid UTF-8.
  [[nodiscard]] static result<resource_name> parse(std::string_view name);

  [[nodiscard]] const std::string& str() const noexcept { return name_; }

  friend auto operator<=>(const resource_name&, const resource_name&) = default;

 private:
  explicit resource_name(std::string name) : name_{std::move(name)} {}
  std::string name_;
};

/// The random identity of one lease: proves "mine" on renew and release.
class owner_id {
 public:
  /// 20 bytes from the kernel. `unavailable` if the kernel has none.
  [[nodiscard]] static result<owner_id> generate();
  /// Accepts 40..128 lower-case hex digits, else `invalid_argument`.
  [[nodiscard]] static result<owner_id> parse(std::string_view hex);

  [[nodiscard]] const std::string& str() const noexcept { return hex_; }

  friend bool operator==(const owner_id&, const owner_id&) = default;

 private:
  explicit owner_id(std::string hex) : hex_{std::move(hex)} {}
  std::string hex_;
};

/// The configured name of a token source, e.g. "sqlite/default": 1..128
/// printable ASCII characters. Tokens of two sources are never compared.
class source_name {
 public:
  [[nodiscard]] static result<source_name> parse(std::string_view name);
  [[nodiscard]] const std::string& str() const noexcept { return name_; }
  friend auto operator<=>(const source_name&, const source_name&) = default;

 private:
  explicit source_name(std::string name) : name_{std::move(name)} {}
  std::string name_;
};

}  // namespace lastdoor

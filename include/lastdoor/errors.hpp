// errors.hpp: what can go wrong, named for what the caller does next.
//
// Invariants
//   - Every failed call carries exactly one code; the code alone decides what
//     the caller does. Messages are for people.
//   - A message names the resource and, where a fence decided, both tokens.
//     It never contains a password: URLs are redacted before they get here.
//   - `result<T>` cannot be dropped silently; `ignore()` is the one greppable
//     way to do it on purpose.
//
// Thread safety: values.
//
//   code                | what happened                | what the caller does
//   --------------------|------------------------------|-----------------------
//   stale_token         | a newer holder was here      | stop; never retry with
//                       |                              | this token
//   busy                | somebody else holds the lock | back off or give up
//   lease_lost          | we cannot prove we still     | stop, acquire anew
//                       | hold it; nothing was sent    |
//   not_owner           | the service says the lease   | stop; it is not yours
//                       | is not (or no longer) ours   |
//   too_slow            | granted, but too late to be  | check latency and TTL,
//                       | useful; undone               | try again
//   in_doubt            | request sent, answer lost    | resolve; never blindly
//                       |                              | retry
//   unavailable         | provably not applied         | retry with back-off
//   no_quorum           | too few nodes answered       | back off
//   precondition_failed | a `require` did not hold, or | read again, decide
//   again
//                       | the row to insert exists     |
//   missing             | no such row (or hidden)      | your decision
//   invalid_argument    | the call can never succeed   | fix the call
//   schema_mismatch     | tables or columns are absent | run the migrations
//                       | or of the wrong kind         |
//   token_regressed     | the token source forgot      | page a human
//   wrong_source        | the store is bound to        | hand over explicitly
//                       | another lock service         |
//   token_exhausted     | the counter is at its end    | page a human
//   damaged             | stored state is unusable     | page a human
//   misconfigured       | rights or settings forbid it | fix the set-up
//   canceled            | the caller asked to stop     | nothing
//   internal            | a bug in lastdoor            | report it
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace lastdoor {

/// The numbers are stable: the tool's exit code is 200 + the number.
enum class errc : std::uint8_t {
  stale_token = 1,
  busy = 2,
  lease_lost = 3,
  not_owner = 4,
  too_slow = 5,
  in_doubt = 6,
  unavailable = 7,
  no_quorum = 8,
  precondition_failed = 9,
  missing = 10,
  invalid_argument = 11,
  schema_mismatch = 12,
  token_regressed = 13,
  wrong_source = 14,
  token_exhausted = 15,
  damaged = 16,
  misconfigured = 17,
  canceled = 18,
  internal = 19,
};

/// The code's own name, e.g. "stale_token". Never null.
[[nodiscard]] std::string_view name_of(errc code) noexcept;

/// Where in the code an error was made. std::source_location, but also for
/// the clang 14 of Debian 12, which does not have it.
struct code_location {
  const char* file;
  unsigned line;
  [[nodiscard]] static constexpr code_location here(
      const char* file = __builtin_FILE(),
      unsigned line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

/// One failure. Build it with the constructor and chain the setters:
///
///   return fail(errc::stale_token, "the row was fenced off")
///       .about(resource).presented(5).seen(9);
class [[nodiscard]] error {
 public:
  error(errc code, std::string text,
        code_location where = code_location::here())
      : code_{code}, text_{std::move(text)}, where_{where} {}

  [[nodiscard]] errc code() const noexcept { return code_; }

  /// The whole line an operator reads: code, resource, tokens, text, backend
  /// detail. Control characters and invalid UTF-8 are escaped.
  [[nodiscard]] std::string message() const;

  /// The bare text, without resource and tokens.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// The resource concerned, or empty.
  [[nodiscard]] const std::string& resource() const noexcept {
    return resource_;
  }
  /// The token the caller presented; 0 when there was none.
  [[nodiscard]] std::int64_t presented() const noexcept { return presented_; }
  /// The mark that was read at the store; 0 when none was.
  [[nodiscard]] std::int64_t seen() const noexcept { return seen_; }
  /// SQLSTATE, SQLite's extended code, a server's own word; or empty.
  [[nodiscard]] const std::string& backend() const noexcept { return backend_; }
  /// For `busy`: how long the holder's lease may still last; 0 if unknown.
  [[nodiscard]] std::int64_t retry_after_ms() const noexcept {
    return retry_after_ms_;
  }
  /// Where in lastdoor the error was made.
  [[nodiscard]] code_location where() const noexcept { return where_; }

  /// True when the very same call may be repeated as it is: nothing has
  /// happened and the cause may pass. `in_doubt` is not retryable.
  [[nodiscard]] bool retryable() const noexcept;
  /// True when the grant in use is finished: stop, and acquire a new one.
  [[nodiscard]] bool ends_lease() const noexcept;

  error& about(std::string_view resource);
  error& presented(std::int64_t token) noexcept;
  error& seen(std::int64_t mark) noexcept;
  error& backend(std::string_view detail);
  error& retry_after_ms(std::int64_t ms) noexcept;

 private:
  errc code_;
  std::string text_;
  std::string resource_;
  std::string backend_;
  std::int64_t presented_{0};
  std::int64_t seen_{0};
  std::int64_t retry_after_ms_{0};
  code_location where_;
};

/// What a drop-in for throwing code raises: one type that holds the error.
/// Taxonomies of exceptions are not actionable; the code is.
class failure : public std::runtime_error {
 public:
  explicit failure(error e)
      : std::runtime_error{e.message()}, error_{std::move(e)} {}
  [[nodiscard]] errc code() const noexcept { return error_.code(); }
  [[nodiscard]] const error& why() const noexcept { return error_; }

 private:
  error error_;
};

/// A value or an error. It is `tl::expected` (so `value_or`, `and_then`, `map`
/// and the rest are there) whose type may not be discarded and whose
/// `value()` throws `failure` instead of a bare access error.
template <class T>
class [[nodiscard]] result : public tl::expected<T, error> {
 public:
  using base = tl::expected<T, error>;
  using base::base;
  // NOLINTBEGIN(google-explicit-constructor): an error or a plain expected is
  // meant to convert on `return`.
  result(error e) : base{tl::unexpect, std::move(e)} {}
  result(base b) : base{std::move(b)} {}
  // NOLINTEND(google-explicit-constructor)

  /// The value. Throws `failure` holding the error when there is none.
  decltype(auto) value() & {
    check();
    if constexpr (!std::is_void_v<T>)
      return (**this);
  }
  decltype(auto) value() const& {
    check();
    if constexpr (!std::is_void_v<T>)
      return (**this);
  }
  decltype(auto) value() && {
    check();
    if constexpr (!std::is_void_v<T>)
      return T{std::move(**this)};
  }

  /// The error's code, or no meaning when there is a value.
  /// Requires: !has_value().
  [[nodiscard]] errc code() const { return this->error().code(); }

  /// Drops the result on purpose.
  void ignore() const noexcept {}

 private:
  void check() const {
    if (!this->has_value())
      throw failure{this->error()};
  }
};

/// `lift_t<T>` is result<T>; `lift_t<result<T>>` is result<T> as well. For
/// calls that run a caller's function and add their own ways to fail.
template <class T>
struct lift {
  using type = result<T>;
};
template <class T>
struct lift<result<T>> {
  using type = result<T>;
};
template <class T>
using lift_t = typename lift<T>::type;

/// Makes an error to return; sugar for the constructor that reads as a verb.
[[nodiscard]] inline error fail(errc code, std::string text,
                                code_location where = code_location::here()) {
  return error{code, std::move(text), where};
}

}  // namespace lastdoor

// redis_reply.hpp: what a server answered, and what its errors mean.
//
// Thread safety: values.
#pragma once

#include <hiredis/hiredis.h>

#include <cstdint>
#include <lastdoor/errors.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace lastdoor::redis_driver {

// A look at one answer, or at one element of a list. Wrong questions have
// harmless answers: 0, an empty text, an element that is nil.
class reply_view {
 public:
  explicit reply_view(const redisReply* r = nullptr) noexcept : r_{r} {}

  [[nodiscard]] bool is_nil() const noexcept {
    return r_ == nullptr || r_->type == REDIS_REPLY_NIL;
  }
  [[nodiscard]] bool is_error() const noexcept {
    return r_ != nullptr && r_->type == REDIS_REPLY_ERROR;
  }
  [[nodiscard]] bool is_integer() const noexcept {
    return r_ != nullptr && r_->type == REDIS_REPLY_INTEGER;
  }
  [[nodiscard]] std::int64_t integer() const noexcept {
    return is_integer() ? r_->integer : 0;
  }
  // Of a string, a status or an error.
  [[nodiscard]] std::string_view text() const noexcept;
  // Of a list; 0 for everything else.
  [[nodiscard]] std::size_t size() const noexcept {
    return r_ != nullptr && r_->type == REDIS_REPLY_ARRAY ? r_->elements : 0;
  }
  [[nodiscard]] reply_view operator[](std::size_t at) const noexcept {
    return reply_view{at < size() ? r_->element[at] : nullptr};
  }

 private:
  const redisReply* r_;
};

// An answer that is owned.
class reply {
 public:
  reply() noexcept = default;
  explicit reply(redisReply* r) noexcept : r_{r} {}
  [[nodiscard]] reply_view view() const noexcept {
    return reply_view{r_.get()};
  }

 private:
  struct deleter {
    void operator()(redisReply* r) const noexcept { freeReplyObject(r); }
  };
  std::unique_ptr<redisReply, deleter> r_;
};

// The word that says what kind of error it is: "READONLY". Looks through the
// wrapping that servers before 7.0 put around an error inside a script.
[[nodiscard]] std::string_view error_word(std::string_view text) noexcept;

// What the caller does next about an error with this word. Every one of them
// means that the command was not carried out.
[[nodiscard]] errc code_of(std::string_view word) noexcept;

// The error for an answer with `is_error()`. `doing` starts the text:
// "acquiring the lease".
[[nodiscard]] error server_error(reply_view answer, std::string_view doing);

// True when the server cannot take writes where it now stands, so that the
// address must be looked up again.
[[nodiscard]] bool must_reconnect(std::string_view word) noexcept;

// One field of an INFO answer, or nothing: field(text, "run_id").
[[nodiscard]] std::string_view info_field(std::string_view info,
                                          std::string_view name) noexcept;

}  // namespace lastdoor::redis_driver

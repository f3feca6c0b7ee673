// redis_script.hpp: one run of a script, by its hash where the server knows
// it and by its text where it does not.
//
// Servers forget scripts with a restart, a failover and SCRIPT FLUSH, so
// every path needs the second way. It is taken within `step`, which costs the
// caller one more round trip and no thought.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "embedded_text.hpp"
#include "redis.hpp"

namespace lastdoor::redis_driver {

class script_call {
 public:
  using words = std::initializer_list<std::string_view>;

  // Requires: `script` outlives this.
  script_call(const detail::embedded_text& script, words keys, words arguments);
  // The same with as many as it takes.
  script_call(const detail::embedded_text& script,
              std::span<const std::string_view> keys,
              std::span<const std::string_view> arguments);

  void send(session& in, node& to);
  // For those who do not stay for the answer: the text at once.
  void send_text(session& in, node& to);

  // For session::wait: true when there is nothing more to wait for.
  bool step(session& in);

  // Requires: it was sent. Once `step` was true this is final.
  [[nodiscard]] fate state() const noexcept { return ticket_->state(); }
  [[nodiscard]] reply_view answer() const noexcept { return ticket_->answer(); }
  // Waits for the answer; gives up at `until`.
  fate finish(session& in, time_point until);

  // Gives up without waiting: what became of it so far.
  fate withdraw(session& in) { return node_->withdraw(in, ticket_); }

  // Requires: it was sent.
  [[nodiscard]] const ticket& sent() const noexcept { return ticket_; }

  // The command with the text in place of the hash.
  [[nodiscard]] command text_form() const;

 private:
  const detail::embedded_text* script_;
  std::size_t words_;
  std::string tail_;  // the words after the hash, in the form of the protocol
  node* node_{nullptr};
  ticket ticket_;
  bool by_text_{false};
};

}  // namespace lastdoor::redis_driver

// redis_script.hpp: one run of a script, by its hash where the server knows
// it and by its text where it does not.
//
// Servers forget scripts with a restart, a failover and SCRIPT FLUSH, so
// every path needs the second way. It is taken within `step`, which costs the
// caller one more round trip and no thought.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>

#include "redis.hpp"

namespace lastdoor::redis_driver {

class script_call {
 public:
  using words = std::initializer_list<std::string_view>;

  // Requires: `script` outlives this.
  script_call(const detail::embedded_text& script, words keys, words arguments)
      : script_call{script, std::span{keys.begin(), keys.size()},
                    std::span{arguments.begin(), arguments.size()}} {}
  // The same with as many as it takes.
  script_call(const detail::embedded_text& script,
              std::span<const std::string_view> keys,
              std::span<const std::string_view> arguments)
      : script_call{std::make_shared<const script_head>(script_head{
                        &script, formed_words{keys}, formed_words{arguments}}),
                    nullptr} {}
  // One run of a script for many (redis_batch.hpp). The answer is its own.
  script_call(std::shared_ptr<const script_head> head,
              std::shared_ptr<const script_part> part)
      : run_{std::move(head), std::move(part)} {}

  // For those who do not stay for the answer: the text at once.
  script_call& by_text() noexcept {
    run_.form = script_form::by_text;
    return *this;
  }
  // With no other run, one that may be refused for instance.
  script_call& alone() noexcept {
    run_.alone = true;
    return *this;
  }

  void send(session& in, node& to);

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

 private:
  script_run run_;  // without a part: the head is all
  node* node_{nullptr};
  ticket ticket_;
};

}  // namespace lastdoor::redis_driver

#include "redis_script.hpp"

namespace lastdoor::redis_driver {

namespace {

// "*N $7 EVALSHA $40 hash" or "*N $4 EVAL $n text", and the rest.
command with_head(std::size_t words, std::string_view verb,
                  std::string_view script, std::string_view tail) {
  std::string bytes;
  bytes.reserve(script.size() + tail.size() + 48);
  bytes += '*';
  bytes += std::to_string(words);
  bytes += "\r\n";
  append_word(bytes, verb);
  append_word(bytes, script);
  bytes += tail;
  return command::from_bytes(std::move(bytes));
}

}  // namespace

script_call::script_call(const detail::embedded_text& script, words keys,
                         words arguments)
    : script_call{script, std::span{keys.begin(), keys.size()},
                  std::span{arguments.begin(), arguments.size()}} {}

script_call::script_call(const detail::embedded_text& script,
                         std::span<const std::string_view> keys,
                         std::span<const std::string_view> arguments)
    : script_{&script}, words_{3 + keys.size() + arguments.size()} {
  std::size_t size = 8;
  for (const auto all : {keys, arguments}) {
    for (const auto word : all) {
      size += word.size() + 16;
    }
  }
  tail_.reserve(size);
  append_word(tail_, std::to_string(keys.size()));
  for (const auto word : keys) {
    append_word(tail_, word);
  }
  for (const auto word : arguments) {
    append_word(tail_, word);
  }
}

void script_call::send(session& in, node& to) {
  node_ = &to;
  by_text_ = false;
  ticket_ = to.send(in, with_head(words_, "EVALSHA", script_->sha1, tail_));
}

void script_call::send_text(session& in, node& to) {
  node_ = &to;
  by_text_ = true;
  ticket_ = to.send(in, text_form());
}

command script_call::text_form() const {
  return with_head(words_, "EVAL", script_->text, tail_);
}

bool script_call::step(session& in) {
  if (!ticket_->settled()) {
    return false;
  }
  if (ticket_->state() == fate::replied && !by_text_ &&
      ticket_->answer().is_error() &&
      ticket_->answer().text().starts_with("NOSCRIPT")) {
    send_text(in, *node_);
    return ticket_->settled();
  }
  return true;
}

fate script_call::finish(session& in, time_point until) {
  if (in.wait([&] { return step(in); }, until)) {
    return ticket_->state();
  }
  return node_->withdraw(in, ticket_);
}

}  // namespace lastdoor::redis_driver

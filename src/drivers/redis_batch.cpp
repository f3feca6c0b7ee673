#include "redis_batch.hpp"

#include <algorithm>
#include <utility>

#include "redis.hpp"

namespace lastdoor::redis_driver {

namespace {
// The server does nothing else meanwhile.
constexpr std::size_t most_runs = 64;
}  // namespace

formed_words::formed_words(std::span<const std::string_view> words)
    : count_{words.size()} {
  std::size_t size = 0;
  for (const auto word : words) {
    size += word.size() + 16;
  }
  bytes_.reserve(size);
  for (const auto word : words) {
    append_word(bytes_, word);
  }
}

std::string batch_bytes(script_form form, const script_head& head,
                        std::span<const script_part* const> parts) {
  const bool by_text = form == script_form::by_text;
  const auto script = by_text ? head.script->text : head.script->sha1;
  std::size_t keys = head.keys.count();
  std::size_t words = 3 + keys + head.arguments.count();
  std::size_t size = script.size() + head.keys.bytes().size() +
                     head.arguments.bytes().size() + 64;
  for (const auto* part : parts) {
    keys += part->keys.count();
    words += part->keys.count() + part->arguments.count();
    size += part->keys.bytes().size() + part->arguments.bytes().size();
  }
  std::string bytes;
  bytes.reserve(size);
  bytes += '*';
  bytes += std::to_string(words);
  bytes += "\r\n";
  append_word(bytes, by_text ? "EVAL" : "EVALSHA");
  append_word(bytes, script);
  append_word(bytes, std::to_string(keys));
  bytes += head.keys.bytes();
  for (const auto* part : parts) {
    bytes += part->keys.bytes();
  }
  bytes += head.arguments.bytes();
  for (const auto* part : parts) {
    bytes += part->arguments.bytes();
  }
  return bytes;
}

// ---- the way of a batch through a node

bool call::concerns(const script_part& part) const noexcept {
  return part_->subject == part.subject ||
         std::any_of(joined_.begin(), joined_.end(), [&](const auto& run) {
           return run->part_->subject == part.subject;
         });
}

void call::become(fate state) noexcept {
  state_ = state;
  for (const auto& run : joined_) {
    run->state_ = state;
  }
  joined_.clear();
}

// What was not begun to be written joins the first run of its kind. It thereby
// overtakes what stands behind that one, but never what has the same subject,
// nor a command that is no run.
void node::gather() {
  std::vector<call*> open;  // that may be joined
  std::erase_if(unsent_, [&](const std::shared_ptr<call>& one) {
    if (one->head_ == nullptr || !one->bytes_.empty()) {
      open.clear();  // nothing overtakes it
      return false;
    }
    const auto first = std::find_if(open.begin(), open.end(),
                                    [&](call* c) { return one->joins(*c); });
    if (first != open.end()) {
      const auto concerned = [&](call* c) { return c->concerns(*one->part_); };
      if ((*first)->joined_.size() + 1 < most_runs &&
          std::none_of(first + 1, open.end(), concerned)) {
        (*first)->joined_.push_back(one);
        return true;
      }
      open.clear();
    }
    open.push_back(one.get());
    return false;
  });
  std::vector<const script_part*> parts;
  for (const auto& c : unsent_) {
    if (c->bytes_.empty()) {
      parts.assign(1, c->part_.get());
      for (const auto& run : c->joined_) {
        parts.push_back(run->part_.get());
      }
      c->bytes_ = batch_bytes(c->form_, *c->head_, parts);
    }
  }
}

// One command without a list, or a list with an answer for each run. False
// when it is neither.
bool node::take(const std::shared_ptr<call>& c, reply answer) {
  pending_ -= 1 + c->joined_.size();
  c->answer_ = std::move(answer);
  const auto whole = c->answer_.view();
  const bool listed = c->head_ != nullptr && !whole.is_error();
  if (listed && whole.size() != 1 + c->joined_.size()) {
    c->become(fate::unknown);
    return false;
  }
  c->view_ = listed ? whole[0] : whole;
  for (std::size_t i = 0; i < c->joined_.size(); ++i) {
    auto& run = *c->joined_[i];
    run.view_ = listed ? whole[i + 1] : whole;
    run.carrier_ = c;
  }
  c->become(fate::replied);
  return true;
}

}  // namespace lastdoor::redis_driver

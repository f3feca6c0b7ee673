#include "redis_batch.hpp"

#include <algorithm>
#include <array>
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

bool call::joins(const call& first) const noexcept {
  return run_.head == first.run_.head && run_.form == first.run_.form &&
         !run_.alone && !first.run_.alone && runs_ == 1;
}

bool call::concerns(const script_part& part) const noexcept {
  for (const auto* run = this; run != nullptr; run = run->next_.get()) {
    if (run->run_.part->subject == part.subject) {
      return true;
    }
  }
  return false;
}

void call::take_along(std::shared_ptr<call> one) noexcept {
  last_->next_ = std::move(one);
  last_ = last_->next_.get();
  ++runs_;
}

void call::become(fate state) noexcept {
  state_ = state;
  for (auto run = std::move(next_); run != nullptr;) {
    run->state_ = state;
    run = std::exchange(run->next_, nullptr);
  }
  last_ = this;
  runs_ = 1;
}

// What was not begun to be written joins the first run of its kind. It thereby
// overtakes what stands behind that one, but never what has the same subject,
// nor a command that is no run. Throws nothing before all is in order.
void node::gather() {
  std::array<call*, 8> open{};  // that may be joined
  std::size_t n = 0;
  std::erase_if(unsent_, [&](const std::shared_ptr<call>& one) {
    if (one->run_.head == nullptr || !one->bytes_.empty()) {
      n = 0;  // nothing overtakes it
      return false;
    }
    const auto end = open.begin() + n;
    const auto first = std::find_if(
        open.begin(), end, [&](const call* c) { return one->joins(*c); });
    if (first != end) {
      if ((*first)->runs_ < most_runs &&
          std::none_of(first + 1, end, [&](const call* c) {
            return c->concerns(*one->run_.part);
          })) {
        (*first)->take_along(one);
        return true;
      }
      n = 0;
    }
    n = n < open.size() ? n : 0;
    open[n++] = one.get();
    return false;
  });
  std::vector<const script_part*> parts;
  for (const auto& c : unsent_) {
    if (c->bytes_.empty()) {
      parts.clear();
      for (const auto* run = c.get(); run != nullptr; run = run->next_.get()) {
        parts.push_back(run->run_.part.get());
      }
      c->bytes_ = batch_bytes(c->run_.form, *c->run_.head, parts);
    }
  }
}

// One command without a list, or a list with an answer for each run. False
// when it is neither.
bool node::take(const std::shared_ptr<call>& c, reply answer) {
  pending_ -= c->runs_;
  c->answer_ = std::move(answer);
  const auto whole = c->answer_.view();
  const bool listed = c->run_.head != nullptr && !whole.is_error();
  if (listed && whole.size() != c->runs_) {
    c->become(fate::unknown);
    return false;
  }
  std::size_t place = 0;
  for (auto* run = c.get(); run != nullptr; run = run->next_.get()) {
    run->view_ = listed ? whole[place++] : whole;
    run->refused_together_ = whole.is_error() && c->runs_ > 1;
    if (run != c.get()) {
      run->carrier_ = c;
    }
  }
  c->become(fate::replied);
  return true;
}

}  // namespace lastdoor::redis_driver

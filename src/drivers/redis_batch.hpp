// redis_batch.hpp: runs of one script for many callers that travel as one.
//
// Half of what a short script costs a server is being called. So a script may
// be written for many: it takes the words that all runs have in common once,
// then the words of each run, and answers a list with one answer for each.
// What waits to be written at the same time, with the same `script_head`, is
// one call to the server; nobody waits for another to come.
//
// Thread safety: values, not changed after they were made.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "embedded_text.hpp"

namespace lastdoor::redis_driver {

// Words of a command in the form in which they travel.
class formed_words {
 public:
  formed_words() = default;
  formed_words(std::initializer_list<std::string_view> words)
      : formed_words{std::span{words.begin(), words.size()}} {}
  explicit formed_words(std::span<const std::string_view> words);

  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

 private:
  std::size_t count_{0};
  std::string bytes_;
};

// What the runs of a script have in common.
struct script_head {
  const detail::embedded_text* script;
  formed_words keys;
  formed_words arguments;
};

// What is one run's own.
struct script_part {
  formed_words keys;
  formed_words arguments;
  // Runs with different ones may change places on their way.
  std::size_t subject{std::hash<std::string>{}(keys.bytes())};
};

enum class script_form : bool { by_hash, by_text };

struct script_run {
  std::shared_ptr<const script_head> head;
  std::shared_ptr<const script_part> part;
  script_form form{script_form::by_hash};
  bool alone{false};  // travels with no other
};

// The command that runs the script for all of them. Keys: the head's, then
// each part's; arguments likewise.
[[nodiscard]] std::string batch_bytes(
    script_form form, const script_head& head,
    std::span<const script_part* const> parts);

}  // namespace lastdoor::redis_driver

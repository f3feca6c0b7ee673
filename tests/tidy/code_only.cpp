#include <cctype>
#include <cstddef>

#include "tidy/rules.hpp"

namespace tidy {
namespace {

class scanner {
 public:
  explicit scanner(std::string_view text) : text_(text), out_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      step();
    }
    return out_;
  }

 private:
  void step() {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with("//")) {
      blank_until(find_or_end("\n", 0));
    } else if (rest.starts_with("/*")) {
      blank_until(after("*/", 2));
    } else if (rest.starts_with("R\"") && !in_a_word()) {
      blank_raw_string();
    } else if (rest.front() == '"' || (rest.front() == '\'' && !in_a_word())) {
      blank_quoted(rest.front());
    } else {
      ++at_;
    }
  }

  // True in the middle of a name or a number: 1'000 holds no character.
  [[nodiscard]] bool in_a_word() const {
    if (at_ == 0) {
      return false;
    }
    const auto before = static_cast<unsigned char>(text_[at_ - 1]);
    return std::isalnum(before) != 0 || before == '_';
  }

  [[nodiscard]] std::size_t find_or_end(std::string_view what,
                                        std::size_t skip) const {
    const std::size_t found = text_.find(what, at_ + skip);
    return found == std::string_view::npos ? text_.size() : found;
  }

  [[nodiscard]] std::size_t after(std::string_view what,
                                  std::size_t skip) const {
    const std::size_t found = text_.find(what, at_ + skip);
    return found == std::string_view::npos ? text_.size() : found + what.size();
  }

  void blank_raw_string() {
    const std::size_t open = find_or_end("(", 0);
    std::string close = ")";
    close += text_.substr(at_ + 2, open - at_ - 2);
    close += '"';
    blank_until(after(close, open - at_));
  }

  void blank_quoted(char quote) {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote && text_[end] != '\n') {
      end += text_[end] == '\\' ? 2U : 1U;
    }
    blank_until(end < text_.size() ? end + 1 : text_.size());
  }

  void blank_until(std::size_t end) {
    for (; at_ < end; ++at_) {
      if (text_[at_] != '\n') {
        out_[at_] = ' ';
      }
    }
  }

  std::string_view text_;
  std::string out_;
  std::size_t at_ = 0;
};

}  // namespace

std::string code_only(std::string_view text) { return scanner(text).run(); }

}  // namespace tidy

// output.hpp: what the tool prints and how it exits.
//
//   - Results go to stdout, as text or (--json) as one JSON object.
//   - Errors are one line on stderr, "lastdoor: <message>"; with --json they
//     are an object on stdout as well.
//   - Tokens and marks are decimal strings in JSON: a reader that keeps
//     numbers as doubles must not round them.
//   - The exit code is 200 + the error's number. See exit_codes_text().
#pragma once

#include <lastdoor/errors.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace lastdoor::cli {

using json = nlohmann::ordered_json;

// As shells do it for a command that is there but cannot run, or is not there.
constexpr int exit_cannot_execute = 126;
constexpr int exit_not_found = 127;

[[nodiscard]] constexpr int exit_code(errc code) noexcept {
  return 200 + static_cast<int>(code);
}

// The documentation of all exit codes, for --help and `help exit-codes`.
[[nodiscard]] std::string exit_codes_text();

// The "error" member of the JSON object, without the outer object.
[[nodiscard]] json to_json(const error& e);

// One line of JSON. Bytes that are not UTF-8 are replaced, never thrown at.
[[nodiscard]] std::string dump(const json& j);

class output {
 public:
  explicit output(bool as_json) noexcept : json_{as_json} {}

  [[nodiscard]] bool as_json() const noexcept { return json_; }

  // Prints one of the two. Answers 0, or the code of `in_doubt` when stdout
  // did not take it: the command has done its work, nobody saw the answer.
  [[nodiscard]] int done(const json& object, std::string_view text) const;

  // Prints the error and answers its exit code. `more` is merged into the
  // JSON object.
  int failed(const error& e, const json& more = json::object()) const;

  // A remark on stderr that changes nothing: "lastdoor: <text>".
  void note(std::string_view text) const;

  // False when stdout was closed before the tool began.
  [[nodiscard]] static bool has_reader() noexcept;

  // Writes to stdout and flushes; false when it could not be written.
  [[nodiscard]] static bool write(std::string_view text);

 private:
  bool json_;
};

}  // namespace lastdoor::cli

#include "cli/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cstdio>

#include "cli/redact.hpp"

namespace lastdoor::cli {

namespace {

struct explanation {
  errc code;
  std::string_view what;
};

constexpr explanation explanations[] = {
    {errc::stale_token, "a newer holder was here"},
    {errc::busy, "somebody else holds the lock"},
    {errc::lease_lost, "the lock was lost, or ran out before the start"},
    {errc::not_owner, "the lock is not, or no longer, that owner's"},
    {errc::too_slow, "granted too late to be useful; undone"},
    {errc::in_doubt, "it may have happened; find out before a retry"},
    {errc::unavailable, "nothing happened; try again later"},
    {errc::no_quorum, "too few nodes answered"},
    {errc::precondition_failed, "a condition does not hold"},
    {errc::missing, "there is no such thing"},
    {errc::invalid_argument, "wrong usage"},
    {errc::schema_mismatch, "run the migrations, or verify found differences"},
    {errc::token_regressed, "the token source forgot"},
    {errc::wrong_source, "the store is bound to another lock service"},
    {errc::token_exhausted, "the token counter is at its end"},
    {errc::damaged, "stored state is unusable"},
    {errc::misconfigured, "rights or settings forbid it"},
    {errc::canceled, "interrupted while waiting; nothing was started"},
    {errc::internal, "a bug in lastdoor"},
};

}  // namespace

std::string exit_codes_text() {
  std::string out =
      "Exit codes:\n"
      "    0  done; of `run`: the command's own exit code, whatever it is\n"
      "    1  `demo` did not show what it is meant to show\n"
      "  126  `run`: the command is there but cannot be executed\n"
      "  127  `run`: there is no such command\n"
      "  128+n  `run`: the command was ended by signal n\n";
  for (const explanation& e : explanations) {
    out += fmt::format("  {}  {}: {}\n", exit_code(e.code), name_of(e.code),
                       e.what);
  }
  out +=
      "A command under `run` that exits with such a number itself cannot be\n"
      "told apart by the number; the line on stderr can: only lastdoor's own\n"
      "errors start with \"lastdoor: \" and the name of the code.\n";
  return out;
}

json to_json(const error& e) {
  return json{{"code", name_of(e.code())},
              {"message", redacted_text(e.message())},
              {"resource", e.resource()},
              {"presented", std::to_string(e.presented())},
              {"seen", std::to_string(e.seen())},
              {"retry_after_ms", e.retry_after_ms()}};
}

std::string dump(const json& j) {
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

bool output::has_reader() noexcept {
  const int flags = ::fcntl(1, F_GETFL);
  return flags >= 0 && (flags & O_ACCMODE) != O_RDONLY;
}

bool output::write(std::string_view text) {
  const bool taken =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  return std::fflush(stdout) == 0 && taken;
}

int output::done(const json& object, std::string_view text) const {
  const bool taken = json_ ? write(dump(object) + '\n') : write(text);
  if (taken) {
    return 0;
  }
  note("in_doubt: done, but the answer could not be written to stdout");
  return exit_code(errc::in_doubt);
}

int output::failed(const error& e, const json& more) const {
  note(redacted_text(e.message()));
  if (json_) {
    json object = {{"error", to_json(e)}};
    object.update(more);
    // The exit code tells the same; nothing is left to do if this fails.
    static_cast<void>(write(dump(object) + '\n'));
  }
  return exit_code(e.code());
}

void output::note(std::string_view text) const {
  const std::string line = fmt::format("lastdoor: {}\n", text);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace lastdoor::cli

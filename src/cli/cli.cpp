#include "cli/cli.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "fencing/text.hpp"
#include "lastdoor/version.hpp"

namespace lastdoor::cli {

namespace {

using namespace std::string_view_literals;

// The words up to the first "--" are ours; the rest is the command of `run`
// and must not be looked at: it may hold anything, "--" and brackets included.
std::vector<std::string> own_words(int argc, char** argv, invocation& call) {
  std::vector<std::string> words;
  int at = 1;
  for (; at < argc && argv[at] != "--"sv; ++at) {
    words.emplace_back(argv[at]);
  }
  call.has_separator = at < argc;
  for (++at; at < argc; ++at) {
    call.command.emplace_back(argv[at]);
  }
  return words;
}

void build(CLI::App& root, invocation& call) {
  root.set_version_flag("--version", fmt::format("lastdoor {}", version()));
  root.require_subcommand(1);
  root.get_formatter()->column_width(28);
  root.footer(exit_codes_text());
  add_demo(root, call);
  add_run(root, call);
  add_acquire(root, call);
  add_release(root, call);
  add_status(root, call);
  add_migrate(root, call);
  add_handover(root, call);
#if LASTDOOR_CLI_REDIS
  add_redlock(root, call);
#endif
  add_help(root, call);
}

// A caller may have closed one of them. Whatever is opened next would take its
// number, and an error message would end up in there. What is written to a
// closed stdout fails as before.
void keep_standard_descriptors() noexcept {
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) {
      // Takes the lowest free number.
      ::open("/dev/null", fd == 1 ? O_RDONLY : O_RDWR);
    }
  }
}

// "--name=" with nothing behind it: the parser would take the next word for
// the value, as when the variable in --name="$X" is empty.
std::optional<error> empty_value(const std::vector<std::string>& words) {
  for (const auto& word : words) {
    if (word.starts_with("--") && word.find('=') == word.size() - 1) {
      return fail(errc::invalid_argument,
                  fmt::format("{} must not be empty",
                              printable(word.substr(0, word.size() - 1))));
    }
  }
  return std::nullopt;
}

// The first word that stands where a command should and is none.
std::optional<std::string> unknown_command(
    const CLI::App& root, const std::vector<std::string>& words) {
  const CLI::App* at = &root;
  for (const auto& word : words) {
    if (word.starts_with('-') || at->get_subcommands({}).empty()) {
      break;
    }
    const auto named = at->get_subcommands(
        [&](const CLI::App* c) { return c->get_name() == word; });
    if (named.empty()) {
      return word;
    }
    at = named.front();
  }
  return std::nullopt;
}

error usage(const std::string& what) {
  return fail(errc::invalid_argument, what + "; see lastdoor --help");
}

int dispatch(int argc, char** argv, invocation& call) {
  CLI::App root{"Locks whose writes are refused once a newer holder exists",
                "lastdoor"};
  build(root, call);
  auto words = own_words(argc, argv, call);
  // Also for errors that are found before the flag would be read.
  call.json = std::find(words.begin(), words.end(), "--json") != words.end();
  if (const auto empty = empty_value(words)) {
    return output{call.json}.failed(*empty);
  }
  if (const auto word = unknown_command(root, words)) {
    return output{call.json}.failed(
        usage(fmt::format("there is no command '{}'", printable(*word))));
  }
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    root.parse(std::move(words));
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      return root.exit(e);  // --help, --version
    }
    return output{call.json}.failed(usage(e.what()));
  }
  if (call.has_separator && !root.got_subcommand("run")) {
    return output{call.json}.failed(usage("only run takes a command after --"));
  }
  return call.action();
}

}  // namespace

void add_json(CLI::App& command, invocation& call) {
  command.add_flag("--json", call.json, "Answer with one JSON object");
}

CLI::Option* add_locks(CLI::App& command, std::string& url) {
  return command.add_option("--locks", url,
                            "The lock service: sqlite:PATH, redis://HOST, "
                            "redlock://H1,H2,H3 or postgresql://USER@HOST/DB");
}

CLI::Option* add_store(CLI::App& command, std::string& url) {
  return command.add_option("--store", url,
                            "The store: sqlite:PATH, redis://HOST or "
                            "postgresql://USER@HOST/DB");
}

CLI::Option* add_resource(CLI::App& command, std::string& name) {
  return command.add_option("--resource", name,
                            "What is protected, e.g. inventory/sku-1001");
}

int run(int argc, char** argv) noexcept {
  keep_standard_descriptors();
  invocation call;
  try {
    return dispatch(argc, argv, call);
  } catch (const failure& f) {
    return output{call.json}.failed(f.why());
  } catch (const std::exception& e) {
    return output{call.json}.failed(fail(errc::internal, e.what()));
  } catch (...) {
    return exit_code(errc::internal);
  }
}

}  // namespace lastdoor::cli

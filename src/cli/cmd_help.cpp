// help: the topics that do not belong to one command.
#include <CLI/CLI.hpp>
#include <memory>

#include "cli/commands.hpp"
#include "cli/output.hpp"

namespace lastdoor::cli {

void add_help(CLI::App& root, invocation& call) {
  auto topic = std::make_shared<std::string>();
  CLI::App* c = root.add_subcommand("help", "Help on a topic: exit-codes");
  c->add_option("topic", *topic, "exit-codes, or nothing for everything")
      ->check(CLI::IsMember({"exit-codes"}));
  c->callback([topic, &root, &call] {
    call.action = [topic, &root, &call] {
      const std::string text = topic->empty() ? root.help() : exit_codes_text();
      return output{call.json}.done({{"help", text}}, text);
    };
  });
}

}  // namespace lastdoor::cli

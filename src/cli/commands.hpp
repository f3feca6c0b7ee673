// commands.hpp: the table of commands. One file each; every function adds its
// subcommand to `root` and, when it was the one given, sets `call.action`.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <string>
#include <vector>

namespace lastdoor::cli {

// One call of the tool.
struct invocation {
  // What stood behind "--": the command of `run`, untouched by the parser.
  std::vector<std::string> command;
  bool has_separator{false};
  bool json{false};
  // What to do, and the exit code.
  std::function<int()> action;
};

void add_acquire(CLI::App& root, invocation& call);
void add_release(CLI::App& root, invocation& call);
void add_status(CLI::App& root, invocation& call);
void add_run(CLI::App& root, invocation& call);
void add_migrate(CLI::App& root, invocation& call);
void add_handover(CLI::App& root, invocation& call);
void add_redlock(CLI::App& root, invocation& call);
void add_demo(CLI::App& root, invocation& call);
void add_help(CLI::App& root, invocation& call);

// Shared by the commands above.
void add_json(CLI::App& command, invocation& call);
CLI::Option* add_locks(CLI::App& command, std::string& url);
CLI::Option* add_store(CLI::App& command, std::string& url);
CLI::Option* add_resource(CLI::App& command, std::string& name);

}  // namespace lastdoor::cli

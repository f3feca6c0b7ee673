// cli.hpp: the tool `lastdoor`, as a function.
#pragma once

namespace lastdoor::cli {

// Parses the command line, does what it says, answers the exit code. Never
// throws.
int run(int argc, char** argv) noexcept;

}  // namespace lastdoor::cli

#include "cli/cli.hpp"

#include <fmt/core.h>

#include "lastdoor/version.hpp"

namespace lastdoor::cli {

int run(int argc, char** argv) {
  static_cast<void>(argv);
  fmt::print("lastdoor {}\n", version());
  return argc > 0 ? 0 : 1;
}

}  // namespace lastdoor::cli

// Placeholder until the tool arrives.
#pragma once

namespace lastdoor::cli {

int run(int argc, char** argv);

}  // namespace lastdoor::cli

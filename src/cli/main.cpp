#include "cli/cli.hpp"

int main(int argc, char** argv) { return lastdoor::cli::run(argc, argv); }

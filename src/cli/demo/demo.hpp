// demo.hpp: the command `demo`, as a function.
//
// The same sellers work the same inventory twice, once with the lock alone
// and once through lastdoor. Holders are stopped in the middle of a sale,
// past their TTL, and run on after somebody else has sold.
#pragma once

#include <optional>

#include "cli/demo/round.hpp"
#include "cli/output.hpp"

namespace lastdoor::cli {

struct demo_options {
  std::string locks, store;  // URLs; empty: files in a temporary folder
  std::optional<std::uint64_t> seed;
  int workers{4};
  int skus{3};
  int seconds{4};
};

// 0: it was shown. 1: it was not, or the result is wrong. Else the code of
// the error that ended it.
[[nodiscard]] int run_demo(const demo_options& o, const output& out);

}  // namespace lastdoor::cli

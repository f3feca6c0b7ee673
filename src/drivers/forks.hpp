// forks.hpp: has this process come through fork() since?
//
// Thread safety: free functions; a load of an atomic, no system call.
#pragma once

namespace lastdoor {

// How many forks lie between the first call in an ancestor and this process.
// Remember it when something is made that must not cross a fork, and compare.
[[nodiscard]] unsigned forks() noexcept;

}  // namespace lastdoor

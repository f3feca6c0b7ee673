// signals.hpp: which threads of this process a signal may be delivered to.
#pragma once

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace lastdoor::support {

/// The ids of the threads that do not block `signal`.
inline std::set<std::string> threads_that_take(int signal) {
  std::set<std::string> all;
  for (const auto& thread :
       std::filesystem::directory_iterator{"/proc/self/task"}) {
    std::ifstream status{thread.path() / "status"};
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigBlk:")) {
        const auto mask = std::stoull(line.substr(7), nullptr, 16);
        if ((mask >> static_cast<unsigned>(signal - 1) & 1U) == 0) {
          all.insert(thread.path().filename());
        }
      }
    }
  }
  return all;
}

}  // namespace lastdoor::support

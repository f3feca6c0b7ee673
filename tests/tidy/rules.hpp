// rules.hpp: what the source of this repository has to keep to, as functions
// from the files to findings.
//
// Pure: a rule sees a tree that is already in memory, so its own tests need no
// files. To add a rule: write it in rules.cpp, name it in check(), give it a
// bad sample in rules_test.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tidy {

struct source_file {
  std::string path;  // below the repository's folder, with '/'
  std::string text;
  bool executable = false;
};

using tree = std::vector<source_file>;

struct finding {
  std::string path;
  int line = 0;  // 0: the file as a whole
  std::string rule;
  std::string what;
};

using findings = std::vector<finding>;

/// All findings of all rules, in the order of the rules.
[[nodiscard]] findings check(const tree& files);

/// C++ text with comments and the contents of literals turned into spaces;
/// line ends stay where they are.
[[nodiscard]] std::string code_only(std::string_view text);

}  // namespace tidy

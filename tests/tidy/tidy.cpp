// tidy <folder>: reads the repository in <folder> and prints what breaks a
// rule. Returns 0 if nothing does.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "tidy/rules.hpp"

namespace {

namespace fs = std::filesystem;

bool is_left_out(const fs::path& name) {
  return name == ".git" || name == ".cache" || name == "build";
}

// Files with a zero byte are not text, and no rule is about them.
tidy::tree read_tree(const fs::path& root) {
  tidy::tree files;
  auto entry = fs::recursive_directory_iterator(root);
  for (; entry != fs::recursive_directory_iterator(); ++entry) {
    if (is_left_out(entry->path().filename())) {
      entry.disable_recursion_pending();
      continue;
    }
    if (!entry->is_regular_file()) {
      continue;
    }
    std::ifstream stream(entry->path(), std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(stream), {}};
    if (text.find('\0') != std::string::npos) {
      continue;
    }
    const fs::perms bits = entry->status().permissions();
    files.push_back({entry->path().lexically_relative(root).generic_string(),
                     std::move(text),
                     (bits & fs::perms::owner_exec) != fs::perms::none});
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: tidy <folder>\n";
    return 2;
  }
  const tidy::tree files = read_tree(argv[1]);
  const tidy::findings found = tidy::check(files);
  for (const tidy::finding& each : found) {
    std::cout << each.path << ':' << each.line << ": " << each.rule << ": "
              << each.what << '\n';
  }
  std::cout << files.size() << " files, " << found.size() << " findings\n";
  return found.empty() && !files.empty() ? 0 : 1;
}

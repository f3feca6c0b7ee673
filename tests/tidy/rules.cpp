#include "tidy/rules.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <optional>
#include <regex>
#include <set>

namespace tidy {
namespace {

// ---- The figures and the exceptions, all in this one place ----------------

constexpr std::size_t widest_line = 80;
constexpr int longest_function = 70;
constexpr int longest_public_header = 300;
constexpr int longest_source = 500;

// Where reading a clock or waiting is the file's purpose.
const std::set<std::string, std::less<>> clock_files = {
    "include/lastdoor/clock.hpp",
    "src/locks/clock.cpp",
};

// Public headers that may show a driver, because the user's own transaction
// type is the point of them.
const std::set<std::string, std::less<>> driver_headers_allowed = {};

// These spell out what they forbid.
bool states_the_rules(const source_file& file) {
  return file.path.starts_with("tests/tidy/") || file.path == ".clang-tidy" ||
         file.path == "CONTRIBUTING.md";
}

// ---- Helpers --------------------------------------------------------------

bool has_suffix(const source_file& file,
                std::initializer_list<std::string_view> suffixes) {
  return std::any_of(suffixes.begin(), suffixes.end(),
                     [&](auto suffix) { return file.path.ends_with(suffix); });
}

bool under(const source_file& file,
           std::initializer_list<std::string_view> folders) {
  return std::any_of(folders.begin(), folders.end(), [&](auto folder) {
    return file.path.starts_with(folder);
  });
}

bool is_cpp(const source_file& file) {
  return has_suffix(file, {".hpp", ".cpp", ".hpp.in"});
}

bool is_cmake(const source_file& file) {
  return has_suffix(file, {"CMakeLists.txt", ".cmake", ".cmake.in"});
}

bool is_script(const source_file& file) {
  return under(file, {"scripts/", ".ci/"});
}

bool is_source(const source_file& file) {
  return is_cpp(file) || is_cmake(file) || is_script(file) ||
         has_suffix(file, {".sql"});
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

const source_file* find(const tree& files, std::string_view path) {
  const auto found =
      std::find_if(files.begin(), files.end(),
                   [&](const auto& file) { return file.path == path; });
  return found == files.end() ? nullptr : &*found;
}

// One finding for each line of text that the pattern is found in.
void find_lines(const source_file& file, std::string_view text,
                const std::regex& pattern, const finding& prototype,
                findings& out) {
  int number = 0;
  for (const std::string& line : lines_of(text)) {
    ++number;
    std::smatch match;
    if (std::regex_search(line, match, pattern)) {
      out.push_back({file.path, number, prototype.rule,
                     prototype.what + ": " + match.str()});
    }
  }
}

// ---- Form -----------------------------------------------------------------

void check_form(const tree& files, findings& out) {
  for (const source_file& file : files) {
    if (!is_source(file)) {
      continue;
    }
    int number = 0;
    for (const std::string& line : lines_of(file.text)) {
      ++number;
      const auto report = [&](const char* what) {
        out.push_back({file.path, number, "form", what});
      };
      if (line.size() > widest_line) {
        report("more than 80 columns");
      }
      if (!line.empty() &&
          std::isspace(static_cast<unsigned char>(line.back())) != 0) {
        report("space at the end of the line");
      }
      if (std::any_of(line.begin(), line.end(), [](char c) {
            return static_cast<unsigned char>(c) < 0x20 ||
                   static_cast<unsigned char>(c) > 0x7e;
          })) {
        report("a character that is not plain ASCII");
      }
    }
  }
}

void check_length(const tree& files, findings& out) {
  for (const source_file& file : files) {
    if (!is_cpp(file)) {
      continue;
    }
    const bool is_public = file.path.starts_with("include/");
    const int limit = is_public ? longest_public_header : longest_source;
    const auto lines = std::count(file.text.begin(), file.text.end(), '\n');
    if (lines > limit) {
      out.push_back(
          {file.path, 0, "file_length",
           std::to_string(lines) + " lines, at most " + std::to_string(limit)});
    }
  }
}

// A rough scan: a brace that follows ")" or ") const noexcept" and the like
// opens a function, and so does one after the last member initialiser.
bool opens_a_function(std::string_view before) {
  static const std::regex tail(
      R"((\)|\}[ ]?)\s*((const|noexcept|override|final|mutable|&&?)\s*)*)"
      R"((->[\w\s:<>,&*]+)?$)");
  // No tail is longer, and std::regex recurses once per character.
  before.remove_prefix(before.size() -
                       std::min<std::size_t>(before.size(), 400));
  const std::size_t start = before.find_last_of(";{");
  if (start != std::string_view::npos) {
    before.remove_prefix(start);
  }
  const std::string text(before);
  return std::regex_search(text, tail);
}

void check_function_length(const tree& files, findings& out) {
  for (const source_file& file : files) {
    if (!is_cpp(file)) {
      continue;
    }
    const std::string code = code_only(file.text);
    std::vector<std::optional<int>> open;  // first line, for a function
    int line = 1;
    for (std::size_t at = 0; at < code.size(); ++at) {
      if (code[at] == '\n') {
        ++line;
      } else if (code[at] == '{') {
        const bool function =
            opens_a_function(std::string_view(code).substr(0, at));
        open.push_back(function ? std::optional(line) : std::nullopt);
      } else if (code[at] == '}' && !open.empty()) {
        const std::optional<int> first = open.back();
        open.pop_back();
        if (first && line - *first + 1 > longest_function) {
          out.push_back({file.path, *first, "function_length",
                         std::to_string(line - *first + 1) + " lines"});
        }
      }
    }
  }
}

// ---- What must not appear -------------------------------------------------

void check_words(const tree& files, findings& out) {
  static const std::regex marker(R"(\b(TODO|FIXME|XXX|HACK)\b)");
  static const std::regex machine_path(R"((^|[^\w.])/(work|root|home|Users)/)");
  for (const source_file& file : files) {
    if (states_the_rules(file)) {
      continue;
    }
    find_lines(file, file.text, marker,
               {{}, 0, "marker", "finish it or leave it out"}, out);
    find_lines(file, file.text, machine_path,
               {{}, 0, "machine_path", "a path of one machine"}, out);
  }
}

void check_drivers(const tree& files, findings& out) {
  static const std::regex include(
      R"(^\s*#\s*include\s*[<"](sqlite3(ext)?\.h|pqxx/?|libpq|hiredis))");
  for (const source_file& file : files) {
    if (is_cpp(file) && under(file, {"include/", "src/fencing/"}) &&
        !driver_headers_allowed.contains(file.path)) {
      find_lines(file, file.text, include,
                 {{}, 0, "driver", "a driver does not belong here"}, out);
    }
  }
}

void check_clocks(const tree& files, findings& out) {
  static const std::regex call(
      R"(\b(system_clock|sleep_for|sleep_until|usleep|nanosleep|)"
      R"(gettimeofday|std::s?rand|std::time)\b|)"
      R"((^|[^\w.:>])(s?rand|sleep)\s*\(|)"
      R"((^|[^\w.:>])time\s*\(\s*(nullptr|NULL|0|&\w+)\s*\))");
  for (const source_file& file : files) {
    if (is_cpp(file) && under(file, {"include/", "src/"}) &&
        !clock_files.contains(file.path)) {
      find_lines(file, code_only(file.text), call,
                 {{}, 0, "clock", "time and chance come in from outside"}, out);
    }
  }
}

void check_threads(const tree& files, findings& out) {
  static const std::regex start(R"(\bstd::j?thread\s*[({])");
  for (const source_file& file : files) {
    if (is_cpp(file) && under(file, {"src/"}) &&
        file.path != "src/drivers/background_thread.hpp") {
      find_lines(file, code_only(file.text), start,
                 {{}, 0, "thread", "background_thread() takes no signals"},
                 out);
    }
  }
}

// ---- What must be there ---------------------------------------------------

// The words of a CMake file, comments left out.
std::set<std::string> words_of_cmake(const std::string& text) {
  static const std::regex comment("#[^\n]*");
  static const std::regex word("[^\\s()\"]+");
  const std::string code = std::regex_replace(text, comment, "");
  return {std::sregex_token_iterator(code.begin(), code.end(), word),
          std::sregex_token_iterator()};
}

// A file that no list names is not built, not tested or not installed, and
// nothing else would tell.
void check_lists(const tree& files, findings& out) {
  std::map<std::string, std::set<std::string>> lists;  // by folder and '/'
  for (const source_file& file : files) {
    if (file.path.ends_with("CMakeLists.txt")) {
      const std::string folder =
          file.path.substr(0, file.path.size() - sizeof("CMakeLists.txt") + 1);
      lists[folder] = words_of_cmake(file.text);
    }
  }
  // A list names a file by its path below the list's folder; where one file
  // is one program, by that path without ".cpp".
  const auto named = [&](const std::string& path) {
    return std::any_of(lists.begin(), lists.end(), [&](const auto& list) {
      if (!path.starts_with(list.first)) {
        return false;
      }
      const std::string name = path.substr(list.first.size());
      return list.second.contains(name) ||
             list.second.contains(name.substr(0, name.rfind(".cpp")));
    });
  };
  const auto report = [&](const source_file& file, const char* list) {
    out.push_back({file.path, 0, "list", std::string("not in ") + list});
  };
  const std::set<std::string>& libraries = lists["src/"];
  const std::string headers = "include/lastdoor/";
  for (const source_file& file : files) {
    if (file.path.ends_with(".cpp") && !named(file.path)) {
      report(file, "a CMakeLists.txt");
    }
    if (file.path.starts_with(headers) && is_cpp(file)) {
      std::string name = file.path.substr(headers.size());
      name = name.substr(0, name.rfind(".in"));
      if (!libraries.contains(name)) {
        report(file, "src/CMakeLists.txt");
      }
    }
    if (file.path.starts_with("migrations/") &&
        file.path.ends_with(".up.sql") && !libraries.contains(file.path)) {
      report(file, "src/CMakeLists.txt");
    }
  }
}

void check_migrations(const tree& files, findings& out) {
  static const std::regex name(
      R"((migrations/[a-z]+/\d{4}_[a-z0-9_]+\.)(up|down)\.sql)");
  for (const source_file& file : files) {
    if (!file.path.starts_with("migrations/") || !file.path.ends_with(".sql")) {
      continue;
    }
    std::smatch match;
    if (!std::regex_match(file.path, match, name)) {
      out.push_back({file.path, 0, "migration",
                     "the name is not NNNN_name.up.sql or .down.sql"});
      continue;
    }
    const std::string other = match.str(2) == "up" ? "down" : "up";
    if (find(files, match.str(1) + other + ".sql") == nullptr) {
      out.push_back({file.path, 0, "migration", "it has no ." + other});
    }
  }
}

std::string first_match(const tree& files, std::string_view path,
                        const char* pattern) {
  const source_file* file = find(files, path);
  std::smatch match;
  if (file != nullptr &&
      std::regex_search(file->text, match, std::regex(pattern))) {
    return match.str(1);
  }
  return "none";
}

void check_version(const tree& files, findings& out) {
  const std::string project = first_match(
      files, "CMakeLists.txt", R"(project\([^)]*VERSION\s+([0-9.]+))");
  const std::string changes =
      first_match(files, "CHANGELOG.md", R"(\n## \[([^\]]*)\])");
  if (project == "none" || project != changes) {
    out.push_back({"CHANGELOG.md", 0, "version",
                   "its first entry is for " + changes +
                       ", the project's version is " + project});
  }
}

void check_scripts(const tree& files, findings& out) {
  for (const source_file& file : files) {
    if (!is_script(file)) {
      continue;
    }
    if (!file.executable) {
      out.push_back({file.path, 0, "script", "it has no run bit"});
    }
    if (!file.text.starts_with("#!")) {
      out.push_back({file.path, 1, "script", "the first line is not #!"});
    }
  }
}

}  // namespace

findings check(const tree& files) {
  findings out;
  check_form(files, out);
  check_length(files, out);
  check_function_length(files, out);
  check_words(files, out);
  check_drivers(files, out);
  check_threads(files, out);
  check_clocks(files, out);
  check_lists(files, out);
  check_migrations(files, out);
  check_version(files, out);
  check_scripts(files, out);
  return out;
}

}  // namespace tidy

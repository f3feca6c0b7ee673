// bench.hpp: what the benchmarks share: the two sides of a comparison in
// turn, medians, the Markdown table, flags.
#pragma once

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <lastdoor/errors.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace lastdoor::bench {

[[noreturn]] inline void stop(std::string_view why) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, why);
  std::exit(1);
}

template <class T>
T must(result<T> r) {
  if (!r) {
    stop(r.error().message());
  }
  if constexpr (!std::is_void_v<T>) {
    return std::move(*r);
  }
}

inline double seconds_on(clockid_t which) {
  timespec t{};
  ::clock_gettime(which, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}
inline double seconds() { return seconds_on(CLOCK_MONOTONIC); }

/// How long a call took.
template <class F>
double seconds_of(const F& call) {
  const double start = seconds();
  call();
  return seconds() - start;
}

/// What `n` operations by so many threads took; `one` gets the thread's number.
template <class Do>
double in_threads(int threads, int n, const Do& one) {
  return seconds_of([&] {
    std::vector<std::thread> all;
    for (int t = 0; t < threads; ++t) {
      all.emplace_back([&, t] {
        for (int i = 0; i < std::max(n / threads, 1); ++i) {
          one(t);
        }
      });
    }
    for (auto& thread : all) {
      thread.join();
    }
  });
}

inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

inline double load() {
  double of[3] = {0, 0, 0};
  static_cast<void>(getloadavg(of, 3));
  return of[0];
}

/// A row of the table: medians over the repetitions, and the smallest and
/// largest ratio.
struct row {
  std::string name;
  double plain_us;
  double lastdoor_us;
  double ratio;
  double lowest;
  double highest;
};

/// One row of what the repetitions took, in seconds for `count` operations.
inline row row_of(std::string name, int count, const std::vector<double>& plain,
                  const std::vector<double>& lastdoor) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    ratios.push_back(lastdoor[i] / plain[i]);
  }
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {std::move(name),
          median(plain) / count * 1e6,
          median(lastdoor) / count * 1e6,
          median(ratios),
          *low,
          *high};
}

struct plan {
  int repetitions{7};
  int count{1'000};  // operations of each side in a repetition
  int batch{50};     // operations of one side before it is the other's turn
};

/// Alternates between two sides in small batches, so that a slow moment of
/// the machine falls on both. A side does `n` operations, the first of them
/// number `from`, and says what that took, in anything that can be added.
template <class A, class B>
auto alternate(const plan& how, const A& plain, const B& lastdoor) {
  using spent = decltype(plain(0, 0));
  plain(0, how.batch);
  lastdoor(0, how.batch);
  std::vector<std::pair<spent, spent>> all;
  for (int r = 0; r < how.repetitions; ++r) {
    std::pair<spent, spent> sums{};
    for (int done = 0; done < how.count; done += how.batch) {
      sums.first += plain(done, how.batch);
      sums.second += lastdoor(done, how.batch);
    }
    all.push_back(sums);
  }
  return all;
}

/// The same as a row; `part` says what of it counts, in seconds.
template <class Spent, class Part>
row row_of(std::string name, const plan& how,
           const std::vector<std::pair<Spent, Spent>>& runs, const Part& part) {
  std::vector<double> plain;
  std::vector<double> lastdoor;
  for (const auto& [a, b] : runs) {
    plain.push_back(part(a));
    lastdoor.push_back(part(b));
  }
  return row_of(std::move(name), how.count, plain, lastdoor);
}

/// For sides that do one operation, number i.
template <class A, class B>
row compare(std::string name, const plan& how, const A& plain,
            const B& lastdoor) {
  const auto batch_of = [](const auto& one) {
    return [&one](int from, int n) {
      return seconds_of([&] {
        for (int i = from; i < from + n; ++i) {
          one(i);
        }
      });
    };
  };
  return row_of(std::move(name), how,
                alternate(how, batch_of(plain), batch_of(lastdoor)),
                [](double s) { return s; });
}

/// Printed as it grows.
class table {
 public:
  void head() const {
    fmt::print(
        "| what / what with | plain us | lastdoor us | ratio | min-max |\n"
        "|---|---|---|---|---|\n");
  }
  void add(row r) {
    fmt::print("| {} | {:.2f} | {:.2f} | {:.3f} | {:.3f}-{:.3f} |\n", r.name,
               r.plain_us, r.lastdoor_us, r.ratio, r.lowest, r.highest);
    std::fflush(stdout);
    rows_.push_back(std::move(r));
  }
  void write_json(const std::string& file) const {
    if (file.empty()) {
      return;
    }
    std::ofstream out{file};
    out << "[\n";
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      const auto& r = rows_[i];
      out << fmt::format(
          "  {{\"name\": \"{}\", \"plain_us\": {:.3f}, \"lastdoor_us\": "
          "{:.3f}, \"ratio\": {:.4f}, \"ratio_min\": {:.4f}, \"ratio_max\": "
          "{:.4f}}}{}\n",
          r.name, r.plain_us, r.lastdoor_us, r.ratio, r.lowest, r.highest,
          i + 1 < rows_.size() ? "," : "");
    }
    out << "]\n";
  }

 private:
  std::vector<row> rows_;
};

/// "--flag value" pairs: `take(flag, value)` is false for one it does not
/// know.
inline void read_flags(
    int argc, char** argv, std::string_view all,
    const std::function<bool(std::string_view, const std::string&)>& take) {
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc || !take(argv[i], argv[i + 1])) {
      stop(fmt::format("flags: {}", all));
    }
  }
}

inline int number(const std::string& text, int least) {
  return std::max(least, std::atoi(text.c_str()));
}

}  // namespace lastdoor::bench

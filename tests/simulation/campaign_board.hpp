// campaign_board.hpp: what the driver of a campaign and its workers share: a
// file that all of them map, and one file of grants for each worker.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <lastdoor/errors.hpp>
#include <map>
#include <string>
#include <system_error>

namespace lastdoor::simulation {

inline constexpr int most_threads = 64;
inline constexpr std::size_t most_codes = 32;

struct campaign_board {
  std::atomic<pid_t> driver;
  /// Nobody acquires while it is set.
  std::atomic<std::uint32_t> hold;
  std::atomic<std::uint32_t> stop;
  /// From before an acquisition until its grant is in the history.
  std::array<std::atomic<std::uint32_t>, most_threads> busy;
  std::array<std::atomic<std::uint64_t>, most_codes> failures;  // by errc
  std::atomic<std::uint64_t> second_rounds;
  std::atomic<std::uint64_t> renewals;
  std::atomic<std::uint64_t> losses;

  /// What the workers met, by name, put into `seen`.
  void tell(std::map<std::string, std::uint64_t>& seen) const {
    for (std::size_t code = 0; code < most_codes; ++code) {
      if (const auto n = failures[code].load(); n > 0) {
        seen[std::string{name_of(static_cast<errc>(code))}] = n;
      }
    }
    seen["second round"] = second_rounds;
    seen["renewal"] = renewals;
    seen["lease lost"] = losses;
  }
};

/// A file in memory, for as long as the object lives. All zero at first.
template <class T>
class shared_file {
 public:
  explicit shared_file(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    void* at = MAP_FAILED;
    if (fd >= 0 && ::ftruncate(fd, sizeof(T)) == 0) {
      at =
          ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    const int code = errno;
    ::close(fd);
    if (at == MAP_FAILED) {
      throw std::system_error{code, std::generic_category(), path};
    }
    at_ = static_cast<T*>(at);
  }
  shared_file(const shared_file&) = delete;
  shared_file& operator=(const shared_file&) = delete;
  ~shared_file() { ::munmap(at_, sizeof(T)); }

  T* operator->() const noexcept { return at_; }
  T& operator*() const noexcept { return *at_; }

 private:
  T* at_;
};

}  // namespace lastdoor::simulation

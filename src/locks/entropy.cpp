#include "entropy.hpp"

#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <lastdoor/clock.hpp>
#include <lastdoor/token.hpp>

namespace lastdoor {

namespace detail {

bool fill_random(std::span<std::byte> out) noexcept {
  while (!out.empty()) {
    const auto n = ::getrandom(out.data(), out.size(), 0);
    if (n > 0) {
      out = out.subspan(static_cast<std::size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

std::uint64_t random_seed() noexcept {
  std::uint64_t seed = 0;
  if (fill_random(std::as_writable_bytes(std::span{&seed, 1})))
    return seed;
  const auto now = boot_clock()->now().time_since_epoch().count();
  return static_cast<std::uint64_t>(now) ^
         (static_cast<std::uint64_t>(::getpid()) << 40U);
}

}  // namespace detail

result<owner_id> owner_id::generate() {
  std::array<std::byte, 20> raw{};
  if (!detail::fill_random(raw)) {
    return fail(errc::unavailable, "the kernel gave no random bytes");
  }
  constexpr std::string_view digits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * raw.size());
  for (const std::byte b : raw) {
    hex += digits[std::to_integer<unsigned>(b) >> 4U];
    hex += digits[std::to_integer<unsigned>(b) & 0xFU];
  }
  return owner_id{std::move(hex)};
}

}  // namespace lastdoor

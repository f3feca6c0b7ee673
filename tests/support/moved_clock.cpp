// Preloaded into a server, moves its wall clock: all that it asks for the time
// of day is shifted by the nanoseconds that a file holds, at once when the
// file changes. The other clocks run as they are.
//
//   LD_PRELOAD=.../libmoved_clock.so MOVED_CLOCK_FILE=/tmp/x redis-server ...
//
// Rejected: libfaketime, which asks for memory while it sets itself up, and so
// cannot be loaded beside an allocator that asks for the time while it does.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

constexpr std::int64_t second = 1'000'000'000;

using shared_number = std::atomic<std::int64_t>;
std::atomic<const shared_number*> shift{nullptr};

// Looked for again until it is there: this may run before main().
const shared_number* find_shift() noexcept {
  if (const auto* known = shift.load()) {
    return known;
  }
  const char* name = std::getenv("MOVED_CLOCK_FILE");
  const int fd = name == nullptr ? -1 : ::open(name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return nullptr;
  }
  void* at =
      ::mmap(nullptr, sizeof(shared_number), PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  if (at == MAP_FAILED) {
    return nullptr;
  }
  shift = static_cast<const shared_number*>(at);
  return shift;
}

bool is_wall_clock(clockid_t which) noexcept {
  return which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE;
}

int moved(clockid_t which, timespec* out) noexcept {
  if (::syscall(SYS_clock_gettime, which, out) != 0) {
    return -1;
  }
  if (const auto* by = is_wall_clock(which) ? find_shift() : nullptr) {
    const auto now = out->tv_sec * second + out->tv_nsec + by->load();
    *out = {now / second, now % second};
  }
  return 0;
}

}  // namespace

extern "C" {

// What libc declares otherwise, attributes and all, is not repeated here.
int clock_gettime(clockid_t which, timespec* out) noexcept {
  return moved(which, out);
}

int gettimeofday(timeval* out, void* /*zone*/) noexcept {
  timespec t{};
  const int rc = moved(CLOCK_REALTIME, &t);
  *out = {t.tv_sec, t.tv_nsec / 1000};
  return rc;
}

time_t time(time_t* out) noexcept {
  timespec t{};
  moved(CLOCK_REALTIME, &t);
  if (out != nullptr) {
    *out = t.tv_sec;
  }
  return t.tv_sec;
}

}  // extern "C"

#include <fstream>
#include <utility>

#include "sqlite_locks.hpp"

namespace lastdoor {

result<std::string> read_boot_id() {
  std::ifstream file{"/proc/sys/kernel/random/boot_id"};
  std::string id;
  if (!(file >> id)) {
    return fail(errc::misconfigured,
                "/proc/sys/kernel/random/boot_id cannot be read, so a lease "
                "of an earlier boot could not be told from one of this boot");
  }
  return id;
}

result<std::unique_ptr<lock_backend>> open_sqlite_backend(
    const std::string& path, const sqlite_locks_options& options) {
  auto boot_id = read_boot_id();
  if (!boot_id) {
    return boot_id.error();
  }
  return open_sqlite_backend_in_boot(path, options, std::move(*boot_id));
}

result<lock_service> open_sqlite_locks(const std::string& path,
                                       const sqlite_locks_options& options) {
  auto backend = open_sqlite_backend(path, options);
  if (!backend) {
    return backend.error();
  }
  return lock_service{std::move(*backend), options.service};
}

}  // namespace lastdoor

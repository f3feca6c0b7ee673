#include "database_path.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

namespace lastdoor::sqlite_driver {

namespace {

result<void> refuse_network_file_system(const std::string& path) {
  struct statfs info {};
  std::string probe = path;
  if (::statfs(probe.c_str(), &info) != 0) {
    probe = std::filesystem::path{path}.parent_path().string();
    if (probe.empty())
      probe = ".";
    if (::statfs(probe.c_str(), &info) != 0)
      return {};  // open will tell
  }
  if (is_network_file_system(static_cast<std::int64_t>(info.f_type))) {
    return fail(errc::misconfigured,
                fmt::format("'{}' lies on a network file system, where "
                            "SQLite's locks do not hold",
                            path));
  }
  return {};
}

result<void> refuse_odd_files(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return {};  // not there yet, or open will tell
  }
  if (!S_ISREG(info.st_mode)) {
    return fail(errc::misconfigured,
                fmt::format("'{}' is not a regular file", path));
  }
  if (info.st_nlink > 1) {
    return fail(errc::misconfigured,
                fmt::format("'{}' has {} names (hard links), and SQLite would "
                            "keep a WAL for each of them; leave it one name",
                            path, info.st_nlink));
  }
  return {};
}

}  // namespace

result<void> check_database_path(const std::string& path) {
  if (path.empty() || path.find('\0') != std::string::npos) {
    return fail(errc::invalid_argument, "a database needs a path");
  }
  if (path == ":memory:") {
    return fail(errc::invalid_argument,
                "':memory:' is no file, and nobody else could see it");
  }
  if (auto ok = refuse_odd_files(path); !ok) {
    return ok;
  }
  return refuse_network_file_system(path);
}

std::string sqlite_name(const std::string& path) {
  return path.starts_with('/') ? path : "./" + path;
}

bool is_network_file_system(std::int64_t magic) noexcept {
  constexpr std::int64_t network[] = {
      0x6969,      // NFS
      0x517B,      // SMB
      0xFE534D42,  // SMB2
      0xFF534D42,  // CIFS
      0x01021997,  // 9p
      0x65735546,  // FUSE: sshfs, s3fs and friends; there is no telling
      0x00C36400,  // Ceph
      0x5346414F,  // AFS
      0x0BD00BD0,  // Lustre
      0x47504653,  // GPFS
      0x7461636F,  // OCFS2
      0x73757245,  // Coda
  };
  return std::find(std::begin(network), std::end(network),
                   magic & 0xFFFFFFFF) != std::end(network);
}

}  // namespace lastdoor::sqlite_driver

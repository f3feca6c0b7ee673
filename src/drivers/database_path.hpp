// database_path.hpp: which paths may be opened as a database.
//
// One file must have one name: SQLite puts the WAL next to the name it was
// given, and two WALs of one file are two databases. And it must be a file:
// what SQLite makes of a URI or of ":memory:" is nobody else's.
//
// Thread safety: free functions.
#pragma once

#include <cstdint>
#include <lastdoor/errors.hpp>
#include <string>

namespace lastdoor::sqlite_driver {

// Refuses what is no path (`invalid_argument`), and network file systems,
// files that are not regular and files with hard links (`misconfigured`). A
// file that is not there yet passes.
[[nodiscard]] result<void> check_database_path(const std::string& path);

// The path so that SQLite takes it as one, whatever it begins with.
[[nodiscard]] std::string sqlite_name(const std::string& path);

// True for file systems on which SQLite's locks cannot be trusted between
// hosts (NFS, SMB, CIFS, 9p, FUSE, Ceph, ...). `magic` is statfs' f_type.
[[nodiscard]] bool is_network_file_system(std::int64_t magic) noexcept;

}  // namespace lastdoor::sqlite_driver

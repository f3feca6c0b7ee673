// open_files.hpp: which files this process has open with SQLite.
//
// SQLite keeps a book of the POSIX locks it holds, one page per inode and
// process. fork() copies the book but not the locks. A child that opens a
// file which the parent had open at the fork finds a page that says "locked
// already" and locks nothing; when the parent closes, it believes that it was
// the last one and deletes the WAL under the child, whose later commits are
// then lost without an error. So such an open is refused. After exec() the
// book is empty and all is well.
//
// Thread safety: all functions may be called from any thread.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

namespace lastdoor::sqlite_driver {

// The note that one connection of this process has a file open.
class open_file {
 public:
  // Null when there is no file: in memory, temporary.
  [[nodiscard]] static std::unique_ptr<open_file> note(const std::string& path);

  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;
  ~open_file();

  // True while the path, links followed, still leads to that file.
  [[nodiscard]] bool leads_here() const noexcept;

  // True in a process that was forked after the file had been opened.
  [[nodiscard]] bool inherited() const noexcept;

 private:
  friend bool opened_before_fork(const std::string& path);
  struct identity {
    dev_t device;
    ino_t inode;
    unsigned forks;
  };
  open_file(std::string path, const identity& id);
  static bool identify(const std::string& path, identity& id) noexcept;

  std::string path_;  // absolute: the working folder may change
  identity id_;
};

// True when a process that this one was forked from had `path` open then.
[[nodiscard]] bool opened_before_fork(const std::string& path);

}  // namespace lastdoor::sqlite_driver

// recording_vfs.hpp: a disk for SQLite that forgets what was not synced, and
// that fails when it is told to.
//
// At each sync the content of the file is copied aside; after a power cut
// that copy is all that is left. A deleted file comes back unless the deletion
// was synced. That is the worst that a power cut may do short of tearing
// writes, which SQLite's checksums are for.
//
// One per program; it becomes SQLite's default. For one thread.
#pragma once

#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace lastdoor::testing {

class recording_vfs {
 public:
  // From now on SQLite opens files through it.
  static recording_vfs& install() {
    static recording_vfs only;
    only.syncs = 0;
    only.fail_syncs = only.fail_writes = false;
    return only;
  }
  recording_vfs(const recording_vfs&) = delete;
  recording_vfs& operator=(const recording_vfs&) = delete;
  ~recording_vfs() { sqlite3_vfs_unregister(&vfs_); }

  int syncs{0};             // of any file, since `install`
  bool fail_syncs{false};   // as a disk fails that is about to die
  bool fail_writes{false};  // as above

  // What a power cut leaves of the database at `from` goes to `to`, where it
  // lies on the disk.
  static void power_cut(const std::string& from, const std::string& to) {
    for (const auto* suffix : {"", "-wal", "-journal"}) {
      const auto synced = from + suffix + ".synced";
      if (std::filesystem::exists(synced)) {
        std::filesystem::copy_file(synced, to + suffix);
        std::filesystem::copy_file(synced, to + suffix + ".synced");
      }
    }
  }

 private:
  struct file {
    sqlite3_file base;
    sqlite3_file* real;
    std::string* path;
  };

  recording_vfs() : real_{sqlite3_vfs_find(nullptr)}, vfs_{*real_} {
    vfs_.szOsFile = static_cast<int>(sizeof(file)) + real_->szOsFile;
    vfs_.zName = "lastdoor-recording";
    vfs_.xOpen = open;
    vfs_.xDelete = remove;
    only_ = this;
    sqlite3_vfs_register(&vfs_, 1);
  }

  static file* mine(sqlite3_file* f) { return reinterpret_cast<file*>(f); }
  static sqlite3_file* real(sqlite3_file* f) { return mine(f)->real; }

  static int open(sqlite3_vfs*, const char* name, sqlite3_file* f, int flags,
                  int* out_flags) {
    file* m = mine(f);
    m->base.pMethods = nullptr;
    m->real = reinterpret_cast<sqlite3_file*>(m + 1);
    auto* next = only_->real_;
    const int rc = next->xOpen(next, name, m->real, flags, out_flags);
    if (rc == SQLITE_OK) {
      m->path = new std::string{name != nullptr ? name : ""};
      m->base.pMethods = methods();
    }
    return rc;
  }

  static int remove(sqlite3_vfs*, const char* name, int and_sync) {
    if (and_sync != 0) {
      ++only_->syncs;
      std::filesystem::remove(std::string{name} + ".synced");
    }
    return only_->real_->xDelete(only_->real_, name, 0);
  }

  static int close(sqlite3_file* f) {
    delete mine(f)->path;
    return real(f)->pMethods->xClose(real(f));
  }

  static int write(sqlite3_file* f, const void* from, int n, sqlite3_int64 at) {
    if (only_->fail_writes) {
      return SQLITE_IOERR_WRITE;
    }
    return real(f)->pMethods->xWrite(real(f), from, n, at);
  }

  static int sync(sqlite3_file* f, int flags) {
    if (only_->fail_syncs) {
      return SQLITE_IOERR_FSYNC;
    }
    ++only_->syncs;
    remember(f);
    // No power will be cut here: the copy is what counts as the disk.
    static_cast<void>(flags);
    return SQLITE_OK;
  }

  // Read through SQLite's own descriptor: to close another one would drop
  // the locks of the process.
  static void remember(sqlite3_file* f) {
    if (mine(f)->path->empty()) {
      return;
    }
    sqlite3_int64 size = 0;
    real(f)->pMethods->xFileSize(real(f), &size);
    std::vector<char> all(static_cast<std::size_t>(size));
    real(f)->pMethods->xRead(real(f), all.data(), static_cast<int>(size), 0);
    std::ofstream{*mine(f)->path + ".synced", std::ios::binary}.write(
        all.data(), size);
  }

  // The rest is handed on as it is.
  static const sqlite3_io_methods* methods() {
    static const sqlite3_io_methods all = [] {
      sqlite3_io_methods m{};
      m.iVersion = 2;
      m.xClose = close;
      m.xWrite = write;
      m.xSync = sync;
      m.xRead = [](auto* f, void* to, int n, sqlite3_int64 at) {
        return real(f)->pMethods->xRead(real(f), to, n, at);
      };
      m.xTruncate = [](auto* f, sqlite3_int64 n) {
        return real(f)->pMethods->xTruncate(real(f), n);
      };
      m.xFileSize = [](auto* f, sqlite3_int64* n) {
        return real(f)->pMethods->xFileSize(real(f), n);
      };
      m.xLock = [](auto* f, int level) {
        return real(f)->pMethods->xLock(real(f), level);
      };
      m.xUnlock = [](auto* f, int level) {
        return real(f)->pMethods->xUnlock(real(f), level);
      };
      m.xCheckReservedLock = [](auto* f, int* out) {
        return real(f)->pMethods->xCheckReservedLock(real(f), out);
      };
      m.xFileControl = [](auto* f, int op, void* arg) {
        return real(f)->pMethods->xFileControl(real(f), op, arg);
      };
      m.xSectorSize = [](auto* f) {
        return real(f)->pMethods->xSectorSize(real(f));
      };
      m.xDeviceCharacteristics = [](auto* f) {
        return real(f)->pMethods->xDeviceCharacteristics(real(f));
      };
      m.xShmMap = [](auto* f, int page, int size, int extend,
                     void volatile** to) {
        return real(f)->pMethods->xShmMap(real(f), page, size, extend, to);
      };
      m.xShmLock = [](auto* f, int at, int n, int flags) {
        return real(f)->pMethods->xShmLock(real(f), at, n, flags);
      };
      m.xShmBarrier = [](auto* f) { real(f)->pMethods->xShmBarrier(real(f)); };
      m.xShmUnmap = [](auto* f, int gone) {
        return real(f)->pMethods->xShmUnmap(real(f), gone);
      };
      return m;
    }();
    return &all;
  }

  inline static recording_vfs* only_ = nullptr;
  sqlite3_vfs* real_;
  sqlite3_vfs vfs_;
};

}  // namespace lastdoor::testing

#include "open_files.hpp"

#include <pthread.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "forks.hpp"

namespace lastdoor::sqlite_driver {

namespace {

struct register_of_files {
  std::mutex guard;
  std::vector<const open_file*> files;
};

// Never destroyed: connections may be closed by static destructors.
register_of_files& all() {
  static register_of_files& r = *[] {
    auto* fresh = new register_of_files;
    // A child must not find the mutex locked by a thread it does not have.
    ::pthread_atfork([] { all().guard.lock(); },    //
                     [] { all().guard.unlock(); },  //
                     [] { all().guard.unlock(); });
    return fresh;
  }();
  return r;
}

}  // namespace

bool open_file::identify(const std::string& path, identity& id) noexcept {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return false;
  }
  id = {info.st_dev, info.st_ino, forks()};
  return true;
}

std::unique_ptr<open_file> open_file::note(const std::string& path) {
  identity id{};
  if (!identify(path, id)) {
    return nullptr;
  }
  std::error_code ec;
  auto absolute = std::filesystem::absolute(path, ec);
  return std::unique_ptr<open_file>{
      new open_file{ec ? path : absolute.string(), id}};
}

bool open_file::leads_here() const noexcept {
  identity now{};
  return identify(path_, now) && now.device == id_.device &&
         now.inode == id_.inode;
}

open_file::open_file(std::string path, const identity& id)
    : path_{std::move(path)}, id_{id} {
  const std::lock_guard lock{all().guard};
  all().files.push_back(this);
}

open_file::~open_file() {
  const std::lock_guard lock{all().guard};
  std::erase(all().files, this);
}

bool open_file::inherited() const noexcept { return id_.forks != forks(); }

bool opened_before_fork(const std::string& path) {
  open_file::identity id{};
  if (!open_file::identify(path, id)) {
    return false;
  }
  const std::lock_guard lock{all().guard};
  return std::any_of(all().files.begin(), all().files.end(),
                     [&](const open_file* f) {
                       return f->id_.device == id.device &&
                              f->id_.inode == id.inode && f->inherited();
                     });
}

}  // namespace lastdoor::sqlite_driver

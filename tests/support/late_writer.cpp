// late_writer: a command for `lastdoor run` in tests. It says that it is
// there, waits for leave, and writes to the store with the grant that it
// finds in its environment. It never looks at a lease.
//
//   late_writer STORE VALUE READY GO RESULT
#include <unistd.h>

#include <cstdlib>
#include <lastdoor/stores/sqlite.hpp>
#include <string>

#include "support/tool_process.hpp"

namespace {

std::string write_once(const std::string& store_path, const char* value) {
  auto grant = lastdoor::grant::from_environment();
  if (!grant) {
    return grant.error().message();
  }
  auto store = lastdoor::open_sqlite_store(store_path);
  if (!store) {
    return store.error().message();
  }
  auto done = store->write(*grant, lastdoor::update("stock").key("id", 1).set(
                                       "qty", std::atoi(value)));
  return done ? "applied" : done.error().message();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lastdoor::support;
  if (argc != 6) {
    return 2;
  }
  write_file(argv[3], std::to_string(::getpid()) + "\n");
  const std::string go = argv[4];
  if (!eventually([&] { return !read_file(go).empty(); })) {
    return 3;
  }
  const std::string outcome = write_once(argv[1], argv[2]);
  write_file(argv[5], outcome + "\n");
  return outcome == "applied" ? 0 : 1;
}

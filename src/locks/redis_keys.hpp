// redis_keys.hpp: the names of lastdoor's keys on a Redis server.
//
// The name space stands in the first braces of every key and holds no brace
// itself. So all keys of it share one slot of a cluster whatever the resource
// is called, and the bytes of the resource, which come last, need no encoding:
// two resources never share a key.
#pragma once

#include <string>
#include <string_view>

namespace lastdoor {

class redis_keys {
 public:
  // Requires: `name_space` is not empty and has no braces.
  explicit redis_keys(std::string_view name_space)
      : prefix_{"lastdoor:{" + std::string{name_space} + "}:"},
        counter_{prefix_ + "counter"},
        marker_{prefix_ + "marker"} {}

  [[nodiscard]] const std::string& counter() const noexcept { return counter_; }
  // Which server the counter was last raised for.
  [[nodiscard]] const std::string& marker() const noexcept { return marker_; }
  [[nodiscard]] std::string lock(std::string_view resource) const {
    return prefix_ + "lock:" + std::string{resource};
  }
  // The channel on which a release is told.
  [[nodiscard]] std::string channel(std::string_view resource) const {
    return prefix_ + "free:" + std::string{resource};
  }

 private:
  std::string prefix_;
  std::string counter_;
  std::string marker_;
};

}  // namespace lastdoor

// embedded_text.hpp: a file inside the program text (cmake/embed_text.cmake).
//
// The views point at string literals and live as long as the program.
#pragma once

#include <string_view>

namespace lastdoor::detail {

struct embedded_text {
  std::string_view text;  // byte for byte
  std::string_view sha1;  // lower-case hex
};

}  // namespace lastdoor::detail

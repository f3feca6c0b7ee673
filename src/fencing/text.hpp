// text.hpp: checks and escapes for text that people or servers will see.
#pragma once

#include <string>
#include <string_view>

namespace lastdoor {

// Well-formed UTF-8 as RFC 3629 has it: no overlong forms, no surrogates,
// nothing above U+10FFFF. U+0000 is well-formed; callers refuse it.
[[nodiscard]] bool valid_utf8(std::string_view bytes) noexcept;

// The text with control characters, DEL and bytes that are not UTF-8 as
// \xNN, so that a name can neither forge a log line nor upset a terminal.
[[nodiscard]] std::string printable(std::string_view bytes);

}  // namespace lastdoor

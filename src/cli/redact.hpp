// redact.hpp: keeps passwords out of everything that the tool prints.
//
// It would rather hide too much than too little: from the first colon of the
// user part to the last '@', whatever stands between, and the value of every
// parameter whose name sounds secret.
#pragma once

#include <string>
#include <string_view>

namespace lastdoor::cli {

// A URL, or any word, without its secrets: redis://:***@host:6379/0.
[[nodiscard]] std::string redacted(std::string_view url);

// The same for each word of a text, for messages that quote an argument.
[[nodiscard]] std::string redacted_text(std::string_view text);

}  // namespace lastdoor::cli

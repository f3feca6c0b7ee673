// redact.hpp: keeps passwords out of everything that the tool prints.
//
// It would rather hide too much than too little: from the first colon of the
// user part to the last '@', whatever stands between, the value of every
// parameter of a URL whose name sounds secret, and that of every "password =".
#pragma once

#include <string>
#include <string_view>

namespace lastdoor::cli {

// A URL, or any text, without its secrets: redis://:***@host:6379/0.
[[nodiscard]] std::string redacted(std::string_view url);

// The most that may be shown of what was given for a URL and could not be
// used: where the password is in it, if at all, is anybody's guess.
[[nodiscard]] std::string shown_url(std::string_view url);

// The same for each word of a text, for messages that quote an argument.
[[nodiscard]] std::string redacted_text(std::string_view text);

}  // namespace lastdoor::cli

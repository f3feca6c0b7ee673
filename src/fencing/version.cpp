#include "lastdoor/version.hpp"

namespace lastdoor {

std::string_view version() noexcept { return LASTDOOR_VERSION; }

}  // namespace lastdoor

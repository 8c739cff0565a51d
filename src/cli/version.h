// What build this is.

#pragma once

#include <string>
#include <string_view>

#include "cli/commands.h"

namespace outrider {

std::string_view version();  // "0.1.0"
std::string_view commit();   // "1a2b3c4d5e6f", "-dirty" behind it if files differed, or "unknown"

// What --version prints.
std::string version_text(const Machine& machine);

}  // namespace outrider

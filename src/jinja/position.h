// A place in a template, and errors that name it.

#pragma once

#include <cstdint>
#include <string_view>

namespace outrider::jinja {

struct Position {
  std::uint32_t line = 1, column = 1;  // counted from 1; columns in bytes
};

// Throws Error: one line, control characters of the message spelled as escapes.
[[noreturn]] void fail_at(std::string_view origin, Position at, std::string_view message);

}  // namespace outrider::jinja

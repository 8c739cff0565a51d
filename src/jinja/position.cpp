#include "jinja/position.h"

#include <string>

#include "base/error.h"

namespace outrider::jinja {

void fail_at(std::string_view origin, Position at, std::string_view message) {
  // A message may quote a conversation, or be the template's own (raise_exception).
  constexpr std::size_t kLongest = 500;
  std::string line;
  for (const char c : message.substr(0, kLongest)) {
    if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      line += c;
    }
  }
  if (message.size() > kLongest) line += "...";
  throw Error("{}: chat template, line {}, column {}: {}", origin, at.line, at.column, line);
}

}  // namespace outrider::jinja

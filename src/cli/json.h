// JSON that commands print.

#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/console.h"

namespace outrider {

// Keys stay in the order in which they were added.
using Json = nlohmann::ordered_json;

// Bytes that are no UTF-8 (names of files, parts of characters) come out as U+FFFD. Without an
// indent, all is on one line.
inline std::string json_text(const Json& value, int indent = -1) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// A document and a line end.
inline void write_json(const Json& document) {
  write_output(json_text(document, 2) + "\n");
}

}  // namespace outrider

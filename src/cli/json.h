// JSON that a command prints: one document and a line end.

#pragma once

#include <nlohmann/json.hpp>

#include "cli/console.h"

namespace outrider {

// Keys stay in the order in which they were added.
using Json = nlohmann::ordered_json;

// Bytes that are no UTF-8 (names of files) come out as U+FFFD.
inline void write_json(const Json& document) {
  write_output(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace outrider

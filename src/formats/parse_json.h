// JSON from outside: files of prompts, conversations, configurations; requests.

#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace outrider {

// Throws Error, one line that begins with `where`, for text that is not JSON, is nested more than
// 64 levels deep or holds a number that no double holds.
nlohmann::json parse_json(std::string_view text, std::string_view where);
// The same with the keys of objects in the order in which they stand. Also throws Error for an
// object that has a key twice.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where);

}  // namespace outrider

// JSON from outside (files of prompts, conversations, configurations; requests), and as text again.
//
// No number changes on its way. The library keeps integers of up to 64 bits and makes doubles of
// longer ones, which loses digits; here those are literals: values that hold the number's text
// (json_literal). So are numbers beyond all doubles (1e400), too small for one (1e-400), or with a
// fraction that a double loses (2.9999999999999999999), so that no reader takes them for others.
// dump_json writes literals as Python writes the number, but those beyond all doubles as they were.

#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace outrider {

// Throws Error, one line that begins with `where`, for text that is not JSON, is nested more than
// 64 levels deep, or holds an integer of more than 4,900 digits (Python reads 4,300) or a number of
// that size. Of equal keys the last counts.
nlohmann::json parse_json(std::string_view text, std::string_view where);
// The same with the keys of objects in the order in which they stand. Also throws Error for an
// object that has a key twice.
nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where);
// Whether parse_json reads it.
bool is_json_text(std::string_view text);

// A value that dump_json writes as this text, which is JSON. The library has no such type: to it
// this is binary data, no number.
nlohmann::ordered_json json_literal(std::string_view text);
// The text of a literal; nothing for other values. Those of parsed trees are numbers.
std::optional<std::string_view> literal_text(const nlohmann::ordered_json& json);
// What messages call the value: "object", "array", "string", "number", "boolean" or "null".
std::string_view json_type(const nlohmann::ordered_json& json);
std::string_view json_type(const nlohmann::json& json);

// The tree as JSON without white space. Floats are written as Python writes them; U+FFFD stands for
// what is no UTF-8.
std::string dump_json(const nlohmann::ordered_json& json);

}  // namespace outrider

// Characters as Python's str sees them, over UTF-8 bytes. A byte that belongs to no well-formed
// character counts as one character of its own (base/utf8.h), which has no case and is no white
// space.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/utf8.h"

namespace outrider::jinja {

std::size_t count_characters(std::string_view bytes);
// The byte at which character number `index` starts, or bytes.size() if there are no more than
// `index`.
std::size_t byte_of_character(std::string_view bytes, std::size_t index);

bool is_space(std::uint32_t code);  // str.isspace
// One-to-one case mappings; characters whose full mapping has several characters (sharp s) stay as
// they are.
std::uint32_t to_upper(std::uint32_t code);
std::uint32_t to_lower(std::uint32_t code);
inline bool is_lower(std::uint32_t code) {
  return to_upper(code) != code;
}
inline bool is_upper(std::uint32_t code) {
  return to_lower(code) != code;
}
inline bool is_cased(std::uint32_t code) {
  return is_lower(code) || is_upper(code);
}
inline bool is_ascii_digit(std::uint32_t code) {
  return code >= '0' && code <= '9';
}

}  // namespace outrider::jinja

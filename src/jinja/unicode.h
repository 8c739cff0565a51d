// Characters as Python's str sees them, over UTF-8 bytes. A byte that belongs to no well-formed
// character counts as one character of its own.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace outrider::jinja {

struct Character {
  // The code point; for an ill-formed byte kIllFormed + the byte, which has no case and is no white
  // space.
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 1 to 4
};

inline constexpr std::uint32_t kIllFormed = 0x110000;

// The character that starts at bytes[at]; at < bytes.size().
Character character_at(std::string_view bytes, std::size_t at);
// Where the character that ends at `at` starts; 0 < at <= bytes.size().
std::size_t previous(std::string_view bytes, std::size_t at);
std::size_t count_characters(std::string_view bytes);
// The byte at which character number `index` starts, or bytes.size() if there are no more than
// `index`.
std::size_t byte_of_character(std::string_view bytes, std::size_t index);
void append_utf8(std::string& out, std::uint32_t code);

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

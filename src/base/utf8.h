// Well-formed and ill-formed UTF-8: Unicode 15, section 3.9, tables 3-7 and 3-8.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace outrider {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What a text begins with: one well-formed character, or one maximal subpart of an ill-formed one.
struct Utf8Step {
  std::size_t n_bytes;  // 1 to 4
  bool well_formed;
  bool unfinished;         // ill-formed only because the text ends here
  std::uint32_t code = 0;  // the character's code point; 0 if ill-formed
};
Utf8Step utf8_step(std::string_view text);  // text is not empty

bool is_well_formed(std::string_view text);

// The text with U+FFFD for each maximal subpart that is no character.
std::string well_formed(std::string_view text);

// Bytes at the end that further bytes could complete to a character, 0 to 3.
std::size_t unfinished_suffix(std::string_view text);

// Characters of a well-formed text.
std::size_t n_characters(std::string_view text);

// A character of any text: each byte that belongs to no well-formed character is one of its own.
struct Character {
  std::uint32_t code = 0;   // the code point; of an ill-formed byte kIllFormed + the byte
  std::size_t n_bytes = 0;  // 1 to 4
};
inline constexpr std::uint32_t kIllFormed = 0x110000;  // beyond all code points

// The character that begins at text[at]; at < text.size().
Character character_at(std::string_view text, std::size_t at);
// The character that ends before text[end]; 0 < end <= text.size().
Character character_before(std::string_view text, std::size_t end);

// Appends the character, or the ill-formed byte, of this code.
void append_utf8(std::string& text, std::uint32_t code);

}  // namespace outrider

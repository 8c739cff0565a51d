#include "jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

namespace outrider::jinja {
namespace {

// Their capitals are several characters in Python, as SS of a sharp s, and one in utf8proc.
struct CodeRange {
  std::uint32_t first, last;
};
constexpr CodeRange kLongCapitals[] = {{0xDF, 0xDF},     {0x1F80, 0x1F87}, {0x1F90, 0x1F97},
                                       {0x1FA0, 0x1FA7}, {0x1FB3, 0x1FB3}, {0x1FC3, 0x1FC3},
                                       {0x1FF3, 0x1FF3}};
constexpr std::uint32_t kLongSmallLetter = 0x130;  // of I with a dot

bool has_long_capital(std::uint32_t code) {
  return std::any_of(std::begin(kLongCapitals), std::end(kLongCapitals),
                     [&](const CodeRange& r) { return code >= r.first && code <= r.last; });
}

}  // namespace

std::size_t count_characters(std::string_view bytes) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < bytes.size(); at += character_at(bytes, at).n_bytes) ++count;
  return count;
}

std::size_t byte_of_character(std::string_view bytes, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < bytes.size(); --index) at += character_at(bytes, at).n_bytes;
  return at;
}

bool is_space(std::uint32_t code) {
  if (code < 0x80)
    return code == ' ' || (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x1F);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

std::uint32_t to_upper(std::uint32_t code) {
  if (code < 0x80) return code >= 'a' && code <= 'z' ? code - 32 : code;
  if (has_long_capital(code)) return code;
  return static_cast<std::uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}

std::uint32_t to_lower(std::uint32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
  if (code == kLongSmallLetter) return code;
  return static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

}  // namespace outrider::jinja

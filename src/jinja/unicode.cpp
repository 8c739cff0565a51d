#include "jinja/unicode.h"

#include <algorithm>
#include <span>

#include "jinja/case_table.h"

namespace outrider::jinja {
namespace {

std::uint32_t mapped(std::span<const CaseRange> table, std::uint32_t code) {
  const auto range = std::lower_bound(
      table.begin(), table.end(), code,
      [](const CaseRange& candidate, std::uint32_t c) { return candidate.last < c; });
  if (range == table.end() || code < range->first || (code - range->first) % range->stride != 0)
    return code;
  return code + static_cast<std::uint32_t>(range->delta);
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
  return mapped({kToUpper, kToUpperCount}, code);
}

std::uint32_t to_lower(std::uint32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z' ? code + 32 : code;
  return mapped({kToLower, kToLowerCount}, code);
}

}  // namespace outrider::jinja

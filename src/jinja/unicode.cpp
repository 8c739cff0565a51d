#include "jinja/unicode.h"

#include <algorithm>
#include <span>

#include "jinja/case_table.h"

namespace outrider::jinja {
namespace {

bool is_continuation(std::uint8_t byte) {
  return (byte & 0xC0) == 0x80;
}

std::uint32_t mapped(std::span<const CaseRange> table, std::uint32_t code) {
  const auto range = std::lower_bound(
      table.begin(), table.end(), code,
      [](const CaseRange& candidate, std::uint32_t c) { return candidate.last < c; });
  if (range == table.end() || code < range->first || (code - range->first) % range->stride != 0)
    return code;
  return code + static_cast<std::uint32_t>(range->delta);
}

}  // namespace

Character character_at(std::string_view bytes, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[at + i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  const Character ill_formed{kIllFormed + lead, 1};
  if (lead < 0xC2 || lead > 0xF4 || bytes.size() - at < length) return ill_formed;
  std::uint32_t code = lead & (0x7Fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(byte(i))) return ill_formed;
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  const bool overlong = code < (length == 3 ? 0x800u : length == 4 ? 0x10000u : 0x80u);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  return overlong || surrogate || code > 0x10FFFF ? ill_formed : Character{code, length};
}

std::size_t previous(std::string_view bytes, std::size_t at) {
  const std::size_t least = at < 4 ? 0 : at - 4;
  std::size_t begin = at - 1;
  while (begin > least && is_continuation(static_cast<std::uint8_t>(bytes[begin]))) --begin;
  return begin + character_at(bytes, begin).bytes == at ? begin : at - 1;
}

std::size_t count_characters(std::string_view bytes) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < bytes.size(); at += character_at(bytes, at).bytes) ++count;
  return count;
}

std::size_t byte_of_character(std::string_view bytes, std::size_t index) {
  std::size_t at = 0;
  for (; index > 0 && at < bytes.size(); --index) at += character_at(bytes, at).bytes;
  return at;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code >= kIllFormed) {
    put(code - kIllFormed);
  } else if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
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

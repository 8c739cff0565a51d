#include "base/utf8.h"

#include <algorithm>

namespace outrider {
namespace {

// The first of several bytes.
struct Lead {
  std::size_t n_bytes;                      // 0: no such character begins with this byte
  unsigned char second_least, second_most;  // bytes after the second are 80 to BF
};

constexpr Lead lead(unsigned char byte) {
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

bool continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  const auto first_byte = static_cast<unsigned char>(text[0]);
  if (first_byte < 0x80) return {1, true, false, first_byte};
  const Lead first = lead(first_byte);
  if (first.n_bytes == 0) return {1, false, false};
  std::uint32_t code = first_byte & (0x7Fu >> first.n_bytes);
  for (std::size_t i = 1; i < first.n_bytes; ++i) {
    if (i == text.size()) return {i, false, true};
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char least = i == 1 ? first.second_least : 0x80;
    const unsigned char most = i == 1 ? first.second_most : 0xBF;
    if (byte < least || byte > most) return {i, false, false};
    code = code << 6 | (byte & 0x3Fu);
  }
  return {first.n_bytes, true, false, code};
}

bool is_well_formed(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (!step.well_formed) return false;
    text.remove_prefix(step.n_bytes);
  }
  return true;
}

std::string well_formed(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    out += step.well_formed ? text.substr(0, step.n_bytes) : kReplacementCharacter;
    text.remove_prefix(step.n_bytes);
  }
  return out;
}

std::size_t unfinished_suffix(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    const Utf8Step step = utf8_step(text.substr(text.size() - n));
    if (step.unfinished && step.n_bytes == n) return n;
  }
  return 0;
}

std::size_t n_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !continues(c); }));
}

Character character_at(std::string_view text, std::size_t at) {
  const Utf8Step step = utf8_step(text.substr(at));
  if (step.well_formed) return {step.code, step.n_bytes};
  return {kIllFormed + static_cast<unsigned char>(text[at]), 1};
}

Character character_before(std::string_view text, std::size_t end) {
  const std::size_t least = end < 4 ? 0 : end - 4;
  std::size_t begin = end - 1;
  while (begin > least && continues(text[begin])) --begin;
  const Character character = character_at(text.substr(0, end), begin);
  if (begin + character.n_bytes == end) return character;
  return {kIllFormed + static_cast<unsigned char>(text[end - 1]), 1};
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
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

}  // namespace outrider

#include "training/shared_passages.h"

#include <vector>

#include "base/utf8.h"

namespace outrider {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  // The finalizer of SplitMix64 (Steele et al. 2014).
  hash ^= value + 0x9E3779B97F4A7C15 + (hash << 6) + (hash >> 2);
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EB;
  return hash ^ (hash >> 31);
}

bool is_letter_or_digit(std::uint32_t code) {
  if (code < 0x80) {
    return (code >= '0' && code <= '9') || (code >= 'a' && code <= 'z') ||
           (code >= 'A' && code <= 'Z');
  }
  if (code >= kIllFormed) return false;
  if (code < 0xC0) return code == 0xAA || code == 0xB5 || code == 0xBA;  // ª µ º
  if (code == 0xD7 || code == 0xF7) return false;                        // × ÷
  if (code >= 0x2000 && code <= 0x206F) return false;                    // spaces, dashes, quotes
  if (code >= 0x3000 && code <= 0x303F) return false;                    // of East Asian scripts
  // Full-width commas, stops and marks.
  return !((code >= 0xFF01 && code <= 0xFF0F) || (code >= 0xFF1A && code <= 0xFF20));
}

std::vector<std::uint64_t> word_hashes(std::string_view text) {
  std::vector<std::uint64_t> words;
  bool in_word = false;
  for (std::size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    at += character.n_bytes;
    std::uint32_t code = character.code;
    if (!is_letter_or_digit(code)) {
      in_word = false;
      continue;
    }
    if (code >= 'A' && code <= 'Z') code += 'a' - 'A';
    if (!in_word) words.push_back(0);
    in_word = true;
    words.back() = mixed(words.back(), code);
  }
  return words;
}

std::uint64_t gram_hash(const std::vector<std::uint64_t>& words, std::size_t begin,
                        std::size_t n_words) {
  std::uint64_t hash = n_words;
  for (std::size_t i = begin; i < begin + n_words; ++i) hash = mixed(hash, words[i]);
  return hash;
}

// Calls `known` with each gram's hash until it returns true; returns whether it did.
template <typename Known>
bool any_gram(std::string_view text, Known known) {
  const std::vector<std::uint64_t> words = word_hashes(text);
  if (words.empty()) return false;
  if (words.size() < SharedPassages::kWords) return known(gram_hash(words, 0, words.size()));
  for (std::size_t begin = 0; begin + SharedPassages::kWords <= words.size(); ++begin) {
    if (known(gram_hash(words, begin, SharedPassages::kWords))) return true;
  }
  return false;
}

}  // namespace

void SharedPassages::add(std::string_view text) {
  any_gram(text, [&](std::uint64_t hash) {
    hashes_.insert(hash);
    return false;
  });
}

bool SharedPassages::shares_passage(std::string_view text) const {
  return any_gram(text, [&](std::uint64_t hash) { return hashes_.contains(hash); });
}

}  // namespace outrider

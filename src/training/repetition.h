// A text that repeats itself: small models do it without end, and a head that learns from such an
// answer learns to repeat.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/token.h"

namespace outrider {

// Watches one text that grows by tokens. The text repeats itself when its last kRun tokens have
// occurred in it three times; occurrences may overlap. A hash finds earlier occurrences and the
// tokens are compared, so a hash never decides. A push takes O(1) on average.
class Repetition {
 public:
  static constexpr std::size_t kRun = 16;  // tokens
  static constexpr std::size_t kOccurrences = 3;

  // Appends a token and returns whether the text has repeated itself, with this token or earlier.
  bool push(Token token);

  // How many tokens to keep: the text ends before the occurrence begins that was a third one first.
  // Nothing while the text does not repeat itself.
  std::optional<std::size_t> kept() const { return kept_; }

 private:
  struct Run {
    std::size_t begin;  // where it occurred first
    std::size_t n_occurrences;
  };

  std::vector<Token> text_;
  std::uint64_t hash_ = 0;  // of the last kRun tokens
  std::unordered_multimap<std::uint64_t, Run> runs_;
  std::optional<std::size_t> kept_;
};

}  // namespace outrider

// What a model said after each token when it last met it: Token Recycling, Luo et al. 2024,
// arXiv:2408.08696.

#pragma once

#include <span>
#include <vector>

#include "base/token.h"
#include "numerics/choice.h"

namespace outrider {

class Successors {
 public:
  static constexpr int kPerToken = 8;

  // 32 bytes for each token of the vocabulary.
  explicit Successors(int vocabulary);

  // Keeps the first kPerToken of `best`, the model's most likely tokens after this one, best first,
  // in place of earlier ones. Tokens beyond the vocabulary are ignored.
  void learn(Token token, std::span<const Candidate> best);
  // The best first; none if it was never met.
  std::span<const Token> after(Token token) const;
  void clear();

 private:
  static constexpr Token kNone = -1;
  std::vector<Token> table_;  // [vocabulary, kPerToken]
};

}  // namespace outrider

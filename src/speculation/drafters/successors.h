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

  // Of this token: the model's best, the first the best. As many as are kept, the others are
  // forgotten. Tokens beyond the vocabulary are ignored.
  void learn(Token token, std::span<const Candidate> best);
  // The best first; none if it was never met.
  std::span<const Token> after(Token token) const;
  void clear();

 private:
  static constexpr Token kNone = -1;
  std::vector<Token> table_;  // [vocabulary, kPerToken]
};

}  // namespace outrider

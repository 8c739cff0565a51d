// Log probabilities of tokens as users ask for them: by the model alone, before bias, penalties,
// filters and temperature.

#pragma once

#include <span>
#include <vector>

#include "base/token.h"

namespace outrider {

struct TokenLogprob {
  Token token;
  float logprob;  // natural; at least -9999, which stands for a token that is out of the question
};

struct ScoredToken {
  float logprob;
  std::vector<TokenLogprob> best;  // descending, of equal ones the lowest id first
};

// The score of `token` by these logits, [vocabulary], none NaN and the largest finite, and the
// n_best most probable tokens (all if there are fewer).
ScoredToken score(std::span<const float> logits, Token token, int n_best);

}  // namespace outrider

// A row's token: filters, temperature and noise over one row of logits (docs/arithmetic.md, "The
// rest"). The reference in plain loops; cpu/choice.h is its fast twin and gives the same bits.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/token.h"
#include "numerics/noise.h"

namespace outrider {

// What keeps a token in the race. Applied in llama.cpp's order: logit bias; repetition, frequency
// and presence penalties; top-k; locally typical (Meister et al. 2022, arXiv:2202.00666); top-p
// (Holtzman et al. 2019, arXiv:1904.09751); min-p (Nguyen et al. 2024, arXiv:2407.01082);
// temperature. Probabilities inside the filters are at temperature 1.
struct Filters {
  int top_k = 40;          // 0: off
  float typical_p = 1.0f;  // 1: off
  float top_p = 0.95f;     // 1: off
  float min_p = 0.05f;     // 0: off
  float repeat_penalty =
      1.0f;  // 1: off; divides positive and multiplies negative logits of seen tokens
  float frequency_penalty = 0;  // times the count, subtracted
  float presence_penalty = 0;   // subtracted once
  float temperature = 0.8f;     // 0: the best logit wins, filters that cannot change it are skipped
};

struct TokenCount {
  Token token;
  int count;
};

struct TokenBias {
  Token token;
  float bias;  // added to the logit; -inf forbids the token
};

// One row's question. Views must stay valid during the call.
struct ChoiceRequest {
  int row = 0;  // of the pass; it must have asked for logits
  Filters filters;
  NoiseKey noise;
  std::span<const TokenBias> bias;
  std::span<const TokenCount> counts;      // of the tokens that penalties look at, each token once
  std::span<const std::uint64_t> allowed;  // bit per token, or empty: all are allowed
  int n_best = 0;                          // > 0: also the n best by the same noisy score
  bool wants_probabilities = false;  // [vocabulary] after all processors, 0 for filtered tokens
  bool wants_logits = false;         // [vocabulary] as the model gave them
};

struct Candidate {
  Token token;
  float score;        // processed logit / temperature + noise; at temperature 0 the processed logit
  float probability;  // after all processors; at temperature 0 the softmax of processed logits
};

struct Choice {
  // Nothing if the row cannot be used: a NaN, or a best logit that is not finite, or no token
  // allowed.
  std::optional<Token> token;
  std::vector<Candidate> best;       // n_best or fewer, best first; ties to the lowest id
  std::vector<float> probabilities;  // if asked for
  std::vector<float> logits;         // if asked for
};

// logits: [vocabulary]. Thread-safe.
Choice choose_reference(std::span<const float> logits, const ChoiceRequest& request);

}  // namespace outrider

// A row's token: filters, temperature and noise over one row of logits (docs/arithmetic.md, "The
// rest"). The reference in plain loops; cpu/fast_choice.h is its fast twin and gives the same bits.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/token.h"
#include "numerics/noise.h"

namespace outrider {

// What a token must pass to be chosen, in llama.cpp's order. Everything is float, each operation
// rounded, softmax as softmax_reference computes it with filtered tokens at -inf (so a lane is id
// mod 16).
//
//   1. logit + 0, + bias    every entry in turn; -inf forbids the token
//   2. penalties            of tokens counted: l / repeat or l * repeat, by the sign of l; then
//                           l - (count * frequency + presence)
//   3. the `allowed` mask   others are forbidden. The result is the processed logits
//   4. top-k                the k first by (logit descending, id ascending)
//   5. locally typical      Meister et al. 2022, arXiv:2202.00666. With log p = logit - max -
//                           log(sum) and H = -(lane sum of p * log p, fused; p = 0 left out): by
//                           (|-log p - H| ascending, id ascending) the fewest tokens, at least
//                           one, that reach typical_p
//   6. top-p                Holtzman et al. 2019, arXiv:1904.09751: by (p descending, id
//                           ascending) the fewest, at least one, that reach top_p
//   7. min-p                Nguyen et al. 2024, arXiv:2407.01082: those with exp(logit - max) >=
//                           min_p, the largest in any case
//   8. the score            logit / temperature + noise; the highest wins, the lowest id among
//                           equals
//
// Probabilities of 5 and 6 are softmaxes at temperature 1 of what survived so far; a set reaches P
// once the sum of its probabilities, added one after another in that order, is at least P. At
// temperature 0 steps 4 to 7 are left out and the score is the processed logit.
struct Filters {
  int top_k = 40;               // 0 or less: off
  float typical_p = 1.0f;       // 1 or more: off
  float top_p = 0.95f;          // 1 or more: off
  float min_p = 0.05f;          // 0 or less: off
  float repeat_penalty = 1.0f;  // 1: off
  float frequency_penalty = 0;
  float presence_penalty = 0;
  float temperature = 0.8f;  // 0 or less: the best logit wins
};

// The least temperature above 0 that a request may ask for (sampling/sampling.h). It keeps logits
// up to 3.4e32 finite when they are divided; no model, bias or penalty gives larger ones.
inline constexpr float kTemperatureMin = 1e-6f;

struct TokenCount {
  Token token;
  int count;
};

struct TokenBias {
  Token token;
  float bias;  // added to the logit; -inf forbids the token
};

// One row's question. Views must stay valid during the call. Tokens outside the vocabulary, in bias
// or counts, are ignored.
struct ChoiceRequest {
  int row = 0;  // of the pass; it must have asked for logits
  Filters filters = {};
  NoiseKey noise = {};
  std::span<const TokenBias> bias = {};
  std::span<const TokenCount> counts = {};  // of the tokens that penalties look at, each token once
  std::span<const std::uint64_t> allowed =
      {};          // bit per token, or empty: all. Past its end: forbidden
  int n_best = 0;  // > 0: also the n best by the same noisy score
  bool wants_probabilities = false;
  bool wants_logits = false;  // [vocabulary] as the model gave them
};

// Probabilities are the softmax of logit / temperature over the tokens that survived all filters;
// at temperature 0 the softmax of the processed logits.
struct TokenProbability {
  Token token;
  float probability;
  friend bool operator==(const TokenProbability&, const TokenProbability&) = default;
};

struct Candidate {
  Token token;
  float score;
  float probability;
};

struct Choice {
  // Nothing, and `best` and `probabilities` empty, if the row cannot be used: a NaN among the
  // logits as given or as processed, or a largest one that is not finite, divided by the
  // temperature or not (so also if nothing is allowed).
  std::optional<Token> token;
  std::vector<Candidate> best;  // the best n_best, or all survivors if fewer; ties to the lowest id
  // If asked for: of all tokens for which it is above 0, ids ascending.
  std::vector<TokenProbability> probabilities;
  std::vector<float> logits;  // if asked for
};

// Steps 1 and 2 in place, but for the + 0: only tokens that the request names are touched.
void add_bias_and_penalties(const ChoiceRequest& request, std::span<float> logits);
// Steps 1 to 3: the processed logits, forbidden tokens at -inf.
std::vector<float> processed_logits(std::span<const float> logits, const ChoiceRequest& request);

// logits: [vocabulary]. Thread-safe.
Choice choose_reference(std::span<const float> logits, const ChoiceRequest& request);

}  // namespace outrider

// How well a model predicts a text, and how far its predictions are from another's.

#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/token.h"

namespace outrider {

// How well a model predicts the token at one position, and how far it is from another model.
struct PredictionScore {
  double nll;  // of the text's next token: -ln of its probability
  // Compared with the other model's logits, if given: KL(other || this) in nats, whether the best
  // token is the same (of equal ones the lowest id), and the other's nll.
  double kl = 0;
  bool agrees = false;
  double other_nll = 0;
};

// logits: [vocabulary]; other: the same of another model, or empty. Throws Error if one of them has
// no distribution (NaN or infinite).
PredictionScore score_prediction(std::span<const float> logits, std::span<const float> other,
                                 Token next);

struct Estimate {
  double mean = 0;
  double error = 0;  // the standard error of the mean, as if positions were independent
};
Estimate estimate(std::span<const double> values);

// Linear between neighbours; `values` must not be empty.
double quantile(std::vector<double> values, double share);

}  // namespace outrider

#include "cli/divergence.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace outrider {
namespace {

// ln of the sum of exp(logits), and the best token.
struct Softmax {
  explicit Softmax(std::span<const float> logits) : logits(logits) {
    best = std::ranges::max_element(logits) - logits.begin();
    const double highest = logits[static_cast<std::size_t>(best)];
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - highest);
    log_sum = highest + std::log(sum);
    if (!std::isfinite(log_sum)) throw Error("a position's logits are no distribution");
  }
  double log_probability(std::size_t token) const { return logits[token] - log_sum; }

  std::span<const float> logits;
  std::ptrdiff_t best;
  double log_sum;
};

}  // namespace

PredictionScore score_prediction(std::span<const float> logits, std::span<const float> other,
                                 Token next) {
  const Softmax q(logits);
  PredictionScore score{.nll = -q.log_probability(static_cast<std::size_t>(next))};
  if (other.empty()) return score;
  const Softmax p(other);
  for (std::size_t token = 0; token < logits.size(); ++token) {
    const double log_p = p.log_probability(token);
    const double weight = std::exp(log_p);
    if (weight > 0) score.kl += weight * (log_p - q.log_probability(token));
  }
  score.agrees = p.best == q.best;
  score.other_nll = -p.log_probability(static_cast<std::size_t>(next));
  return score;
}

Estimate estimate(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  Estimate result;
  for (const double value : values) result.mean += value;
  result.mean /= n;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  if (n > 1) result.error = std::sqrt(squares / (n - 1) / n);
  return result;
}

double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

}  // namespace outrider

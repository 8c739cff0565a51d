#include "sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace outrider {
namespace {

// JSON has no infinity.
constexpr double kLeast = -9999;

}  // namespace

ScoredToken score(std::span<const float> logits, Token token, int n_best) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const double log_sum = largest + std::log(sum);
  const auto logprob = [&](Token of) {
    return static_cast<float>(std::max(kLeast, logits[of] - log_sum));
  };
  std::vector<Token> order(n_best > 0 ? logits.size() : 0);
  std::iota(order.begin(), order.end(), 0);
  const auto n = std::min(order.size(), static_cast<std::size_t>(n_best));
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(n);
  std::partial_sort(order.begin(), middle, order.end(), [&](Token a, Token b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  ScoredToken scored{.logprob = logprob(token), .best = {}};
  for (auto best = order.begin(); best != middle; ++best)
    scored.best.push_back({*best, logprob(*best)});
  return scored;
}

}  // namespace outrider

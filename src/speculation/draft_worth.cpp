#include "speculation/draft_worth.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace outrider {

BestGain best_gain(std::span<const double> values, std::span<const double> prices) {
  BestGain best;
  double tokens = 0;
  for (std::size_t n = 1; n <= values.size() && n < prices.size(); ++n) {
    tokens += values[n - 1];
    if (tokens - prices[n] > best.gain) best = {static_cast<int>(n), tokens, tokens - prices[n]};
  }
  return best;
}

int n_that_share(std::span<const double> gains, const std::function<double(int)>& price) {
  int best = 0;
  double sum = 0, most = 0;
  for (int n = 1; n <= static_cast<int>(gains.size()); ++n) {
    sum += gains[n - 1];
    if (const double left = sum - price(n); left > most) {
      most = left;
      best = n;
    }
  }
  return best;
}

double DraftWorth::level_gain(std::vector<double> drafted, std::span<const double> expected) const {
  if (row_prices.empty()) return std::accumulate(expected.begin(), expected.end(), 0.0);
  std::ranges::sort(drafted, std::greater<>{});
  const double without = best_gain(drafted, row_prices).gain;
  drafted.insert(drafted.end(), expected.begin(), expected.end());
  std::ranges::sort(drafted, std::greater<>{});
  return best_gain(drafted, row_prices).gain - without;
}

}  // namespace outrider

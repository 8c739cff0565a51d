#include "speculation/draft_worth.h"

#include <algorithm>
#include <functional>

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

bool DraftWorth::level_pays(std::vector<double> drafted, std::span<const double> expected) const {
  if (row_prices.empty()) return !expected.empty();
  std::ranges::sort(drafted, std::greater<>{});
  const double without = best_gain(drafted, row_prices).gain;
  drafted.insert(drafted.end(), expected.begin(), expected.end());
  std::ranges::sort(drafted, std::greater<>{});
  return best_gain(drafted, row_prices).gain - without > level_price;
}

}  // namespace outrider

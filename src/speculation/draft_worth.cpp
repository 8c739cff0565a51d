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

BestGain Prospect::best(const std::function<double(int)>& price) const {
  BestGain best;
  for (int n = 1; n < static_cast<int>(gains.size()); ++n)
    if (const double gain = gains[n] - price(n); gain > best.gain) best = {n, tokens[n], gain};
  return best;
}

Prospect DraftWorth::prospect(std::vector<double> drafted, int levels_max, double handicap) const {
  std::ranges::sort(drafted, std::greater<>{});
  const double first = drafted.empty() ? 0 : drafted[0];
  const BestGain without = best_gain(drafted, row_prices);
  const int n_rows = static_cast<int>(row_prices.size()) - 1;
  const auto price = [&](int n) { return row_prices[std::min(n, n_rows)]; };
  Prospect prospect;
  double tokens = 0, path = 1;
  for (int levels = 1; levels <= std::min(levels_max, n_rows); ++levels) {
    path *= calibration->best_guess_acceptance(*sequence, drafter, levels, handicap);
    tokens += path;
    // In place of the other nodes, or where their first guess is wrong.
    const double gain =
        std::max(tokens - price(levels) - without.gain,
                 (1 - first) * tokens - (price(without.n + levels) - price(without.n)));
    const bool is_more = gain > prospect.gains.back();
    prospect.tokens.push_back(is_more ? tokens : prospect.tokens.back());
    prospect.gains.push_back(is_more ? gain : prospect.gains.back());
  }
  while (prospect.gains.size() > 1 && prospect.gains.back() == prospect.gains.end()[-2]) {
    prospect.tokens.pop_back();
    prospect.gains.pop_back();
  }
  return prospect;
}

}  // namespace outrider

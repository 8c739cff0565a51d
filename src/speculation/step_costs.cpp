#include "speculation/step_costs.h"

#include <algorithm>

namespace outrider {
namespace {

// Of many sequences, a row has to bring so much more than its price: estimates are wrong, those
// that look best the most, and a sequence that ends early leaves the others a pass that is shared
// by fewer.
constexpr double kRowMargin = 0.25;

}  // namespace

PassWork StepCosts::work(const PassLoad& load, int n_nodes) {
  return {.rows = load.rows + n_nodes,
          .without_logits = load.prompt_rows - load.scored_rows,
          .attended = load.attended + n_nodes * load.node_attended};
}

StepCosts::StepCosts(const CostCurve& curve, const PassLoad& load)
    : curve_(curve),
      load_(load),
      plain_ms_(curve.empty() ? 0
                              : curve.ms({.rows = std::max(1, load.rows - load.prompt_rows),
                                          .attended = load.attended - load.prompt_attended})) {}

double StepCosts::added_ms(int n) const {
  if (n == 0) return 0;
  return std::max(curve_.ms(work(load_, n)) - curve_.ms(work(load_)), kRowMin * n * plain_ms_);
}

std::vector<double> StepCosts::row_prices(int n_max, double tokens_per_ms) const {
  const double price = tokens_per_ms * (1 + kRowMargin * (1 - 1.0 / load_.sequences));
  std::vector<double> prices{0};
  for (int n = 1; n <= n_max; ++n) prices.push_back(std::max(prices.back(), price * added_ms(n)));
  return prices;
}

}  // namespace outrider

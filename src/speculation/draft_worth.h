// What drafts are worth, and what they cost, in the one unit that both have: tokens. A drafted node
// is worth the probability that it is accepted; time costs the tokens that it would bring
// otherwise.

#pragma once

#include <span>
#include <vector>

#include "speculation/calibration.h"

namespace outrider {

// The largest sum of the first n values less the price of n rows, over all n that have a price.
// values: descending. prices: [rows + 1], of the first 0, 1, 2, ... drafted rows together.
struct BestGain {
  int n = 0;
  double tokens = 0;  // the first n values together
  double gain = 0;
};
BestGain best_gain(std::span<const double> values, std::span<const double> prices);

// For a drafter that grows a text's draft level by level, each of which takes time.
struct DraftWorth {
  const Calibration* calibration = nullptr;  // null: confidences stand
  const Calibration::Text* text = nullptr;
  int drafter = 0;
  std::vector<double> row_prices = {};  // as for best_gain(); empty: time has no price
  double level_price = 0;               // of the time of a further level

  double acceptance(float confidence, int depth) const {
    return calibration ? calibration->acceptance(*text, {drafter, confidence}, depth) : confidence;
  }
  double level(int depth) const {
    return calibration ? calibration->level(*text, drafter, depth) : 1;
  }

  // Whether a further level is worth its time: with nodes of the `expected` values beside those
  // that are drafted already, in any order.
  bool level_pays(std::vector<double> drafted, std::span<const double> expected) const;
};

}  // namespace outrider

// What drafts are worth and what they cost, both in tokens: a drafted node is worth the probability
// that it is accepted; time costs the tokens that it would bring otherwise (glossary: price).

#pragma once

#include <algorithm>
#include <functional>
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

// How many sequences should share a draft model's pass: the n with the largest sum of the first n
// gains less price(n), that of a pass for n; 0: it does not pay. gains: descending, in tokens.
int n_that_share(std::span<const double> gains, const std::function<double(int)>& price);

// What a draft of at most n levels is expected to bring: index n, or the last if n is beyond it.
struct Prospect {
  std::vector<double> tokens = {0};
  std::vector<double> gains = {0};  // beyond what the tree brings without it, less its rows' price

  int at(int levels) const { return std::min(levels, static_cast<int>(gains.size()) - 1); }
  // For the n with the largest gains[n] - price(n), that of n levels' time; n is 0 if none pays.
  BestGain best(const std::function<double(int)>& price) const;
};

// For a drafter that grows a sequence's draft level by level, each of which takes time.
struct DraftWorth {
  const Calibration* calibration = nullptr;  // null: confidences stand
  const Calibration::Sequence* sequence = nullptr;
  int drafter = 0;
  std::vector<double> row_prices = {};  // as for best_gain(); empty: time has no price
  double ms_price = 0;                  // of a millisecond

  double acceptance(float confidence, int depth) const {
    return calibration ? calibration->acceptance(*sequence, {drafter, confidence}, depth)
                       : confidence;
  }
  double best_guess_acceptance(int depth) const {
    return calibration ? calibration->best_guess_acceptance(*sequence, drafter, depth) : 1;
  }

  // What a further level brings before its time is paid: nodes of the `expected` values beside
  // those that are drafted already, in any order.
  double level_gain(std::vector<double> drafted, std::span<const double> expected) const;

  // Of a draft of one node per level beside nodes of these values, if what the drafter knows of the
  // sequence has this handicap (Calibration::handicap). Needs a calibration and prices.
  Prospect prospect(std::vector<double> drafted, int levels_max, double handicap) const;
};

}  // namespace outrider

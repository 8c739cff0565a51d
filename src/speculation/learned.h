// What an engine has learned about costs and acceptance, as a value: to be kept, and to begin
// another engine with for the same models, drafters, machine and settings.

#pragma once

#include <vector>

#include "speculation/calibration.h"
#include "speculation/cost_curve.h"

namespace outrider {

// What asking a drafter brought, in means over the recent times.
struct Yield {
  double weight = 0;  // times
  double tokens = 0;  // accepted, that no drafter before it had proposed
  double levels = 0;  // of its drafts
  double rows = 0;    // of these that were checked
};

struct Learned {
  std::vector<CostCurve::Point> passes;    // of the target
  double logits_ms = 0, attention_ms = 0;  // of one row, of one position
  struct OfDrafter {
    std::vector<CostCurve::Point> passes;  // of its own model; empty: it runs none
    Calibration::OfDrafter acceptance;
    Yield yield;
  };
  std::vector<OfDrafter> drafters;
};

}  // namespace outrider

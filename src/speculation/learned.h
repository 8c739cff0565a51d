// What an engine has learned about costs and acceptance, as a value: to be kept, and to begin
// another engine with for the same models, drafters, machine and settings. By default as before any
// answer.

#pragma once

#include <vector>

#include "speculation/calibration.h"
#include "speculation/cost_curve.h"
#include "speculation/rider_gain.h"

namespace outrider {

struct Learned {
  std::vector<CostCurve::Point> passes;    // of the target
  double logits_ms = 0, attention_ms = 0;  // of one row, of one position
  struct OfDrafter {
    std::vector<CostCurve::Point> passes;  // of its own model; empty: it runs none
    Calibration::OfDrafter acceptance;
    RiderGain riders = {};
  };
  std::vector<OfDrafter> drafters;
  double answers = 1;         // how many answer_tokens stands for; older ones count less
  double answer_tokens = 48;  // of an answer, in the mean
  double speed = 1;           // tokens of recent sequences in the time of a pass without drafts
  double bank = 0;            // guard.h
};

}  // namespace outrider

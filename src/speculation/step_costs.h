// The time of a step's pass, and the price of its drafted rows.

#pragma once

#include <vector>

#include "speculation/cost_curve.h"

namespace outrider {

// A step's pass without drafts.
struct PassLoad {
  int rows = 0;                // the root of every sequence, and prompt rows
  int rows_max = 0;            // that the pass may have, with drafts
  int prompt_rows = 0;         // that only prefill
  int scored_rows = 0;         // of these, with logits
  int sequences = 1;           // that wait for the pass, with or without rows of it
  double attended = 0;         // positions, by these rows
  double prompt_attended = 0;  // of that, by prompt rows
  double node_attended = 0;    // positions of a drafted row, mean of the sequences

  int rows_left() const { return rows_max > rows ? rows_max - rows : 0; }
};

// The curve outlives this. While it is empty, nothing has a cost that may be asked for.
class StepCosts {
 public:
  // What a row is taken to cost at least, as a share of a pass.
  static constexpr double kRowMin = 0.02;

  StepCosts(const CostCurve& curve, const PassLoad& load);

  static PassWork work(const PassLoad& load, int n_nodes = 0);
  double plain_ms() const { return plain_ms_; }  // without drafts and rows of prompts
  double added_ms(int n_nodes) const;            // by these drafted rows
  // In tokens, [n_max + 1], of the first 0, 1, 2, ... drafted rows together.
  std::vector<double> row_prices(int n_max, double tokens_per_ms) const;

 private:
  const CostCurve& curve_;
  const PassLoad& load_;
  double plain_ms_;
};

}  // namespace outrider

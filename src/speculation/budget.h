// How much to draft and which nodes to check: expected tokens over expected time, from a measured cost curve T(n) and learned
// acceptance. It decides how fast a text comes, never what it says.

#pragma once

#include <span>
#include <vector>

#include "speculation/calibration.h"
#include "speculation/drafter.h"
#include "speculation/tree.h"

namespace outrider {

// T(n): milliseconds of one target pass over n rows, all with logits. Between measured points it is linear.
class CostCurve {
 public:
  void record(int rows, double ms);  // refines the estimate at `rows`, robust against outliers
  bool empty() const;
  double ms(int rows) const;

 private:
  struct Point {
    int rows;
    double ms;
    int n;
  };
  std::vector<Point> points_;  // rows ascending
};

struct BudgetOptions {
  bool automatic = true;  // false: limits as given, no clocks
  DraftLimits limits;
};

class Budget {
 public:
  Budget(BudgetOptions options, int n_drafters);

  // What drafter `drafter` may add this step; rows = 0: do not ask it. A drafter that keeps missing is left out and probed
  // again later.
  DraftLimits limits(int drafter, const DraftCost& cost);

  // Prunes all trees of a step together to the nodes that pay.
  void plan(std::span<DraftTree*> trees);

  // After the step: per tree which nodes were accepted, rows of the pass, its time and that of drafting.
  void observe(std::span<DraftTree* const> trees, std::span<const std::vector<bool>> accepted, int rows,
               double forward_ms, std::span<const double> draft_ms);

  CostCurve& curve() { return curve_; }

 private:
  BudgetOptions options_;
  CostCurve curve_;
  Calibration calibration_;
  struct Standing {  // of a drafter
    double value = 0;
    int misses = 0, pause = 0;
  };
  std::vector<Standing> standings_;
};

}  // namespace outrider

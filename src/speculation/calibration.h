// How often proposals come true, learned: per drafter, depth and stated confidence.

#pragma once

#include <vector>

#include "speculation/tree.h"

namespace outrider {

class Calibration {
 public:
  explicit Calibration(int n_drafters);

  // The probability that this proposal's node is accepted given that its parent is.
  double acceptance(const Proposal& proposal, int depth) const;
  // Takes the outcome of every proposal whose parent was accepted (node 0 is). accepted: [tree.size()].
  void observe(const DraftTree& tree, const std::vector<bool>& accepted);

 private:
  struct Cell {
    double accepted = 0, seen = 0;
  };
  Cell& cell(const Proposal& proposal, int depth);
  const Cell& cell(const Proposal& proposal, int depth) const;
  std::vector<Cell> cells_;
};

}  // namespace outrider

// How often proposals are accepted: learned per drafter, stated confidence and depth.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/token.h"
#include "speculation/tree.h"

namespace outrider {

class Calibration {
 public:
  explicit Calibration(int n_drafters);

  // The estimated probability that this node is accepted, given that its parent is; of several
  // proposals the highest estimate counts. The estimate starts at the confidence that the drafter
  // stated. Observed outcomes move it towards the acceptance rate of this drafter at this
  // confidence, first over all depths, then at this depth. Old outcomes fade, so the estimate
  // follows a text that changes.
  double acceptance(const DraftNode& node) const;

  // Counts the outcome of every proposal whose parent is part of the text. `taken`: the tokens by
  // which the text went on after node 0. The tree may hold nodes that were never checked, because
  // the text decides about them too.
  void observe(const DraftTree& tree, std::span<const Token> taken);

 private:
  // Outcomes, the older ones with less weight.
  struct Outcomes {
    double accepted = 0, total = 0;
    void add(bool was_accepted);
    double acceptance(double prior) const;
  };
  struct Bin {  // of one drafter and range of confidences
    Outcomes all_depths;
    std::vector<Outcomes> by_depth;  // [depth ranges]
  };
  double acceptance(const Proposal& proposal, int depth) const;
  std::size_t bin(const Proposal& proposal) const;

  std::vector<Bin> bins_;  // [drafters, confidence ranges]
};

}  // namespace outrider

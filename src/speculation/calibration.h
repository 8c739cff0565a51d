// How often proposals come true, learned: per drafter, depth and stated confidence.

#pragma once

#include <span>
#include <vector>

#include "base/token.h"
#include "speculation/tree.h"

namespace outrider {

class Calibration {
 public:
  explicit Calibration(int n_drafters);

  // The probability that this proposal's node, `depth` edges from node 0, is accepted given that
  // its parent is. A new calibration believes the stated confidence; with evidence it moves towards
  // what was seen, first over all depths of this drafter and confidence, then at this depth. Old
  // evidence fades, so it follows a text that changes.
  double acceptance(const Proposal& proposal, int depth) const;

  // The same for a node with several proposals: the most hopeful counts.
  double acceptance(const DraftNode& node) const;

  // Takes the outcome of every proposal whose parent lies on the text, node 0 among them: `taken`
  // is how the text went on. The tree may hold nodes that were never checked: their outcome is
  // known all the same.
  void observe(const DraftTree& tree, std::span<const Token> taken);

 private:
  struct Cell {
    double accepted = 0, seen = 0;
    void add(bool was_accepted);
    double estimate(double prior) const;
  };
  struct Cells {  // of one drafter and confidence
    Cell all;
    std::vector<Cell> by_depth;
  };
  Cells& cells(const Proposal& proposal);
  const Cells& cells(const Proposal& proposal) const;

  std::vector<Cells> cells_;  // [drafters, confidences]
};

}  // namespace outrider

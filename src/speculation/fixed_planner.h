// Drafts as much as the options allow, in every step: no clocks, no guard, no belief, so that the
// same requests get the same drafts.

#pragma once

#include <span>
#include <vector>

#include "speculation/planner.h"

namespace outrider {

// A drafted node of one of several trees.
struct RankedNode {
  int sequence, node;
  double chance;  // that it is accepted
};

// chances: [sequences][nodes]. The most likely nodes of all trees, the best first, as many as each
// sequence, the pass and options.rows have room for. Parents come before their children. Sequences
// that draw have their rows already and none in the result.
std::vector<RankedNode> rank_nodes(std::span<const PlannedSequence> sequences,
                                   const std::vector<std::vector<double>>& chances,
                                   const PassLoad& load, const PlannerOptions& options);
// Cuts the trees to these nodes, but not those of sequences that draw.
void keep_nodes(std::span<const PlannedSequence> sequences, std::span<const RankedNode> nodes);

class FixedPlanner final : public Planner {
 public:
  explicit FixedPlanner(const PlannerOptions& options) : options_(options) {}

  void begin(DraftSequence, int) override {}
  void end(DraftSequence) override {}
  bool plain_step_is_due(const PassLoad&) const override { return false; }
  std::vector<Ask> ask(int drafter, const Drafter& asked,
                       std::span<const PlannedSequence> sequences, const PassLoad& load) override;
  void learn(int, DraftSequence, int, std::span<const PrefillGuess>) override {}
  // Keeps the nodes with the largest products of the confidences that drafters state.
  void prune(std::span<const PlannedSequence> sequences, const PassLoad& load) override;
  // Each as many as it wants, and as its drafted nodes leave of the rows that it may have.
  std::vector<int> riders(int drafter, const Drafter& asked,
                          std::span<const PlannedSequence> sequences, const PassLoad& load,
                          int n_riders) override;
  void observe(std::span<const DraftOutcome>, const PassLoad&, double) override {}

 private:
  PlannerOptions options_;
};

}  // namespace outrider

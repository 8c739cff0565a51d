// Drafts with heads that each guess one further token (Medusa, Cai et al. 2024, arXiv:2401.10774):
// one pass over all of them, from the state of the target's last committed row. What a head says
// holds for every node of its depth; which nodes the tree has is decided as for other models
// (growth.h), by products of the probabilities that they are accepted, not by a fixed list.

#pragma once

#include <memory>
#include <string_view>

#include "speculation/drafters/head.h"

namespace outrider {

class MedusaDrafter final : public HeadDrafter {
 public:
  // The target has such heads.
  explicit MedusaDrafter(std::shared_ptr<Backend> target);

  std::string_view name() const override { return "medusa"; }
  void measure_costs() override;
  DraftCost cost(int n_sequences, int length) const override;

 private:
  // All heads of all sequences, as far as depths are wanted.
  bool prefill(std::span<Draft> drafts, double& passes) override;
  void time_heads(SequenceId sequence);
};

}  // namespace outrider

// Drafts with a head that guesses a block of tokens in one pass (BlockInput in model/spec.h). What
// its rows say holds for every node of a depth, or is completed by the node's token: then the tree
// grows level by level (growth.h), and a level takes a product of low rank.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "speculation/drafters/head.h"

namespace outrider {

// The head has keys and values of the text: after each pass of the target it computes them of the
// same rows. A block's own are gone when it has been asked.
class BlockDrafter final : public HeadDrafter {
 public:
  // The target has such a head. name: what --draft calls its kind, a literal.
  BlockDrafter(std::shared_ptr<Backend> target, std::string_view name);

  std::string_view name() const override { return name_; }
  void computed(const Pass& pass, std::span<const ComputedText> texts) override;
  void measure_costs() override;
  DraftCost cost(int n_sequences, int length) const override;
  std::vector<CostCurve::Point> costs() const override { return block_curve().points(); }
  void restore_costs(std::span<const CostCurve::Point> costs) override {
    block_curve().restore(costs);
  }

 private:
  bool prepare(const DraftRequest& request, Sequence& sequence, std::span<const DraftRequest> all,
               int& n_promised) override;
  bool prefill(std::span<Draft> drafts, double& passes) override;
  void finish(std::span<const Draft> drafts) override;
  std::optional<StateBefore> state_before(const Sequence& sequence,
                                          const Said& said) const override;
  static Options options_for(Backend& target);
  bool has_room(SequenceId sequence) const;
  void ask_roots(std::span<Draft> drafts);
  void time_blocks(SequenceId sequence);
  CostCurve& block_curve();
  const CostCurve& block_curve() const;

  const std::string_view name_;
  CostCurve blocks_;  // of the passes over blocks, where curve_ is that of levels
  std::map<SequenceId, int> first_guesses_;  // rows of the last pass over blocks
};

}  // namespace outrider

// Drafts with a head that goes on from the target's features (EAGLE, Li et al. 2024 and 2025,
// arXiv:2401.15077, arXiv:2503.01840; layers for multi-token prediction). How its tree grows is in
// growth.h; what a row of it takes, in EagleInput (model/spec.h).

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "speculation/drafters/head.h"

namespace outrider {

// The head has read what the target has: after each of its passes it computes the same rows, which
// become history with them. So it prefills nothing. Beside them it computes the text's last token,
// whose state is all that the first level needs. That row is gone at the commit, and computed again
// where a second level goes on from it.
class EagleDrafter final : public HeadDrafter {
 public:
  // The target has such a head. name: what --draft calls its kind, a literal.
  EagleDrafter(std::shared_ptr<Backend> target, std::string_view name);

  std::string_view name() const override { return name_; }
  void truncate(DraftSequence sequence, int length) override;
  void end(DraftSequence sequence) override;
  void computed(const Pass& pass, std::span<const ComputedText> texts) override;
  void measure_costs() override;
  DraftCost cost(int n_sequences, int length) const override;

 private:
  // What the head computed of a text's last token.
  struct TextEnd {
    int position;
    std::vector<float> state;
  };

  // Their roots alone.
  bool prefill(std::span<Draft> drafts, double& passes) override;
  std::optional<Row> missing_text_end(const Sequence& sequence) const override;
  void finish(std::span<const Draft> drafts) override;
  Row text_end_row(const Sequence& sequence) const;

  const std::string_view name_;
  std::map<DraftSequence, TextEnd> text_ends_;
  CostCurve first_levels_;  // of the passes for them, by texts
};

}  // namespace outrider

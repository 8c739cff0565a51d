// Drafts with some of the target's own layers, and the target checks with all: skipped layers
// (Zhang et al. 2023, arXiv:2309.08168; SWIFT, Xia et al. 2024, arXiv:2410.06916) or early exit, if
// the last ones are left out (LayerSkip, Elhoushi et al. 2024, arXiv:2404.16710). How a tree grows
// is in growth.h.

#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "speculation/drafters/growth.h"

namespace outrider {

// Its rows read what the target's cache has committed of the sequence, and are scratch, which is
// gone after each proposal. So it prefills nothing and has no cache of its own.
class SelfDrafter final : public GrowingDrafter {
 public:
  // layers: those that it runs, ascending.
  SelfDrafter(std::shared_ptr<Backend> target, std::vector<int> layers);

  std::string_view name() const override { return "self"; }
  void begin(DraftSequence sequence, CacheScope scope = {}) override;
  void bind(DraftSequence sequence, SequenceId target) override;
  void measure_costs() override;

 private:
  // Sequences of which the target has computed all but the last token.
  bool prepare(const DraftRequest& request, Sequence& sequence, std::span<const DraftRequest> all,
               int& n_promised) override;
  bool prefill(std::span<Draft> drafts, double& passes) override;
  void finish(std::span<const Draft> drafts) override;
};

// The layers that are left out, as people write them: "3,5,8-12". Ascending, each once. Throws
// Error if it is no such list.
std::vector<int> parse_layers(std::string_view text);
// The other way round.
std::string layers_text(std::span<const int> layers);

// Those that remain of n_layers. Throws Error if the model does not have one of them, or if none
// remains.
std::vector<int> layers_without(std::span<const int> left_out, int n_layers);

// Which are left out where nobody has searched: every other one of the middle half; none of fewer
// than four.
std::vector<int> usual_skipped_layers(int n_layers);

}  // namespace outrider

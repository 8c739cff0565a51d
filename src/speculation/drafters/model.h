// Drafts with a smaller model: Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023,
// arXiv:2302.01318. Its children of a node are the best of its own processed logit / temperature +
// the noise that the target's choice will use, so when sampling too it guesses the target's very
// choice (Daliri, Musco, Suresh 2025, arXiv:2408.07978). The tree grows at its most hopeful nodes
// (EAGLE-2, Li et al. 2024, arXiv:2406.16858).

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "model/backend.h"
#include "speculation/drafter.h"

namespace outrider {

// The draft model has a cache of its own, which catches up lazily: tokens that it lacks go into the
// pass of the first draft row, long prompts in passes of batch_rows before. What an accepted path
// already computed becomes history without computing it again. A text whose tokens the draft model
// does not know, or that fills its context, gets no proposals. A row without usable logits (NaN)
// ends this step's drafting for its sequence. Where the draft model has logits for some tokens
// only, those of the text join them: what a text has said it often says again.
//
// Confidence of a child: at temperature 0 its probability. Otherwise the softmax of noisy scores
// over the best ones, for what the noise already decided is no longer open: its lead says how far
// the target would have to disagree.
class ModelDrafter final : public Drafter {
 public:
  // target_vocabulary: ids from there on are never drafted.
  ModelDrafter(std::unique_ptr<Backend> backend, int target_vocabulary);

  std::string_view name() const override { return "model"; }
  void begin(DraftSequence sequence) override;
  void observe(DraftSequence sequence, std::span<const Token> tokens) override;
  void propose(std::span<const DraftRequest> requests) override;
  void truncate(DraftSequence sequence, int length) override;
  void end(DraftSequence sequence) override;
  int unread(DraftSequence sequence) const override;
  void measure_costs() override;
  DraftCost cost() const override { return cost_; }

 private:
  // A node of this step's own tree. Node 0 is the text's last token and always committed.
  struct Node {
    Token token;
    int parent;
    int depth;
    float confidence;            // given its parent
    double value;                // product of confidences along its path
    std::optional<SlotId> slot;  // where it was computed, if it was
  };
  struct Sequence {
    SequenceId id;
    std::vector<Token> text;
    std::optional<std::size_t> first_unknown;  // position of a token beyond the draft vocabulary
    std::vector<Node> tree;                    // what the scratch slots hold
  };
  struct Growth;  // one request's tree in the making

  void catch_up(std::vector<Growth>& growths);
  bool grow(std::vector<Growth>& growths);
  ChoiceRequest question(const Growth& growth, const Node& node, std::vector<TokenCount>& counts,
                         int row) const;
  void add_children(Growth& growth, int node, const Choice& choice);

  std::unique_ptr<Backend> backend_;
  std::vector<std::uint64_t> allowed_;  // ids that both know; empty if the draft has no others
  std::map<DraftSequence, Sequence> sequences_;
  DraftCost cost_;
};

}  // namespace outrider

// Drafts from a text that the answer is expected to repeat mostly, which the request brings with
// it: the file to be edited, the last version of a document. "Predicted outputs" of OpenAI's API,
// 2024; input-guided drafts: Yang et al. 2023, arXiv:2304.04487 (LLMA).

#pragma once

#include <map>
#include <span>

#include "speculation/drafter.h"
#include "speculation/drafters/alignment.h"
#include "speculation/drafters/proposal_time.h"

namespace outrider {

class PredictionDrafter final : public Drafter {
 public:
  std::string_view name() const override { return "prediction"; }
  void begin(DraftSequence sequence, CacheScope scope = {}) override;
  void observe(DraftSequence sequence, std::span<const Token> tokens) override;
  void expect(DraftSequence sequence, std::span<const Token> prediction) override;
  // How the prediction goes on from each place where the answer may stand.
  void propose(std::span<const DraftRequest> requests) override;
  void truncate(DraftSequence sequence, int length) override;
  void end(DraftSequence sequence) override;
  DraftCost cost(int n_sequences, int) const override { return time_.cost(n_sequences); }

 private:
  struct Text {
    int n_before = 0;  // tokens before the answer
    Alignment answer;  // to the prediction, which may be empty
  };
  void propose(const DraftRequest& request) const;

  std::map<DraftSequence, Text> texts_;
  ProposalTime time_;
};

}  // namespace outrider

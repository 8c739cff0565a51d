// Drafts from the text itself: where its end occurs earlier in prompt or answer, it proposes what
// followed there, several continuations as a tree. Prompt lookup decoding, Saxena 2023,
// https://github.com/apoorvumang/prompt-lookup-decoding, with the frequencies of SuffixDecoding,
// Oliaro et al. 2024, arXiv:2411.04975.

#pragma once

#include <cstddef>
#include <map>
#include <span>

#include "speculation/drafter.h"
#include "speculation/drafters/proposal_time.h"
#include "speculation/drafters/suffix_text.h"

namespace outrider {

struct LookupOptions {
  std::size_t memory_bytes = std::size_t{256} << 20;  // of one text's index
};

class LookupDrafter final : public Drafter {
 public:
  explicit LookupDrafter(LookupOptions options) : options_(options) {}

  std::string_view name() const override { return "lookup"; }
  void begin(DraftSequence sequence) override;
  void observe(DraftSequence sequence, std::span<const Token> tokens) override;
  // The most likely nodes among all continuations, with the probabilities that SuffixText gives.
  void propose(std::span<const DraftRequest> requests) override;
  void truncate(DraftSequence sequence, int length) override;
  void end(DraftSequence sequence) override;
  DraftCost cost(int n_texts, int) const override { return time_.cost(n_texts); }

 private:
  void propose(const DraftRequest& request) const;

  const LookupOptions options_;
  std::map<DraftSequence, SuffixText> texts_;
  ProposalTime time_;
};

}  // namespace outrider

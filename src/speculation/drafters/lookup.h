// Drafts from the sequence itself: where its end occurs earlier in prompt or answer, it proposes
// what followed there, several continuations as a tree. Prompt lookup decoding, Saxena 2023,
// https://github.com/apoorvumang/prompt-lookup-decoding, with the frequencies of SuffixDecoding,
// Oliaro et al. 2024, arXiv:2411.04975, and, where the user wants it, its memory of earlier
// answers.

#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "speculation/drafter.h"
#include "speculation/drafters/earlier_answers.h"
#include "speculation/drafters/proposal_time.h"
#include "speculation/drafters/suffix_text.h"

namespace outrider {

struct LookupOptions {
  std::size_t memory_bytes = std::size_t{256} << 20;  // of one sequence's index
  // Earlier answers of the standard scope; null: drafts come from the sequence alone. Each drafter
  // needs its own. The 8 other scopes that were used last have theirs, too, in earlier_bytes each.
  std::shared_ptr<EarlierAnswers> earlier = nullptr;
  std::size_t earlier_bytes = std::size_t{64} << 20;  // of another scope
};

class LookupDrafter final : public Drafter {
 public:
  explicit LookupDrafter(LookupOptions options) : options_(std::move(options)) {}

  std::string_view name() const override { return "lookup"; }
  void begin(DraftSequence sequence, CacheScope scope = {}) override;
  void observe(DraftSequence sequence, std::span<const Token> tokens) override;
  // The answer begins here; once ended it is an earlier one. `prediction` is not used.
  void expect(DraftSequence sequence, std::span<const Token> prediction) override;
  // The most likely nodes among all continuations, with the probabilities that SuffixText gives.
  void propose(std::span<const DraftRequest> requests) override;
  void truncate(DraftSequence sequence, int length) override;
  void end(DraftSequence sequence) override;
  void forget() override;
  DraftCost cost(int n_sequences, int) const override { return time_.cost(n_sequences); }

 private:
  struct Text {
    SuffixText own;
    std::shared_ptr<EarlierAnswers> answers = {};  // of its scope
    std::optional<std::size_t> answer = {};        // where it begins
    // The end of the text among earlier answers, as they were then.
    SuffixText::End earlier = {};
    long version = -1;
  };
  void propose(const DraftRequest& request);
  std::shared_ptr<EarlierAnswers> answers_of(CacheScope scope);
  static const SuffixText& find_earlier(Text& text);
  static void end_answer(Text& text);

  const LookupOptions options_;
  std::map<DraftSequence, Text> texts_;
  // Of scopes but the standard one, the last asked for first.
  std::vector<std::pair<CacheScope, std::shared_ptr<EarlierAnswers>>> other_answers_;
  ProposalTime time_;
};

}  // namespace outrider

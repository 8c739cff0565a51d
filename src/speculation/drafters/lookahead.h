// Drafts n-grams that the target said in rows that rode along in its own passes: Jacobi iteration
// over tokens ahead of the text, whose trajectories are kept. Lookahead decoding, Fu et al. 2024,
// arXiv:2402.02057.

#pragma once

#include <map>
#include <vector>

#include "speculation/drafter.h"
#include "speculation/drafters/proposal_time.h"

namespace outrider {

// Ahead of a sequence lies a window of columns, one for each of the next places. A column holds
// what the target last said for its place, given the columns before, and for the places after it,
// each said in a later step. All tokens of the window ride along: the columns' first tokens as a
// chain, the others below them. What the target says after a column makes it longer, and once it
// has its full height it is an n-gram of the target: it goes into the sequence's pool, its first
// token leaves, and it moves on by a place. Proposed are the n-grams that begin with the text's
// last token, by how often they were said.
//
// A new column begins with any token of the text: the target's answers replace it.
class LookaheadDrafter final : public Drafter {
 public:
  std::string_view name() const override { return "lookahead"; }
  void begin(DraftSequence sequence, CacheScope scope = {}) override;
  void observe(DraftSequence sequence, std::span<const Token> tokens) override;
  void propose(std::span<const DraftRequest> requests) override;
  int riders_max() const override;
  std::vector<Rider> riders(DraftSequence sequence, int rows, int depth) override;
  void answered(DraftSequence sequence, std::span<const std::optional<Token>> answers) override;
  void truncate(DraftSequence sequence, int length) override;
  void end(DraftSequence sequence) override;
  DraftCost cost(int n_sequences, int) const override { return time_.cost(n_sequences); }

 private:
  using Column = std::vector<Token>;
  struct NGram {
    std::vector<Token> tokens;  // after the one that it is found by
    int count;                  // how often it was said
  };
  struct Sequence {
    std::vector<Token> text = {};
    std::vector<Column> window = {};  // of the places after the text; [0]: of the next one
    int height = 0;                   // of a column that is complete
    std::size_t n_begun = 0;          // columns
    std::map<Token, std::vector<NGram>> pool = {};  // by first token; the last said first
  };
  static void learn(Sequence& sequence, const Column& column, Token answer);
  static void propose(const DraftRequest& request, const Sequence& sequence);

  std::map<DraftSequence, Sequence> sequences_;
  ProposalTime time_;
};

}  // namespace outrider

// Two vocabularies in one tree: token-level intersection, Timor et al. 2025, arXiv:2502.05202,
// algorithm 4. A draft model of another vocabulary proposes the tokens that both have.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/token.h"
#include "model/backend.h"
#include "text/tokenizer.h"

namespace outrider {

// Tokens are the same if they stand for the same bytes; control tokens if they have the same name
// or are both what texts begin or end with. Of several that are the same, one that is no byte token
// counts, and of these the lowest id. A value.
class VocabularyMap {
 public:
  VocabularyMap(const Tokenizer& target, const Tokenizer& draft);

  // The draft model's token for a target's; nothing: it has none.
  std::optional<Token> own(Token target) const;
  // What the draft model reads for a token of a text: its own token for it, otherwise the longest
  // of its tokens that the token's bytes begin with, then the same for the rest. Bytes for which it
  // has none are left out.
  std::span<const Token> read(Token target) const;
  // What it reads before a text: the token that its texts begin with, if the target's do not.
  std::optional<Token> first() const { return first_; }

  int n_common() const { return static_cast<int>(common_.size()); }
  // Of the smaller vocabulary's tokens, how many the other one has, 0 to 1.
  double overlap() const;
  // Why it is too little to draft with; nothing: it is enough.
  std::optional<std::string> problem() const;

  // Has the draft model loaded with the common tokens alone, under the target's names.
  void name_outputs(LoadOptions& options) const;

 private:
  struct Pair {
    Token own, target;
    auto operator<=>(const Pair&) const = default;
  };
  int n_target_, n_draft_;
  std::vector<Token> own_;        // [target]; -1: none
  std::vector<Pair> common_;      // ascending, each token once
  std::vector<Token> read_;       // one target token's after another
  std::vector<std::size_t> end_;  // [target], in read_
  std::optional<Token> first_;
};

}  // namespace outrider

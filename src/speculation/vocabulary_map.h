// Two vocabularies in one tree: token-level intersection, Timor et al. 2025, arXiv:2502.05202,
// algorithm 4. A draft model of another vocabulary proposes the tokens that both have.

#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/token.h"
#include "text/tokenizer.h"

namespace outrider {

// Tokens are the same if they stand for the same bytes; control tokens if they have the same name.
// Of several draft tokens that are the same one the lowest id counts.
class VocabularyMap {
 public:
  // Both tokenizers must outlive it.
  VocabularyMap(const Tokenizer& target, const Tokenizer& draft);

  // The draft model's token for a target's; nothing: it has none.
  std::optional<Token> own(Token target) const;
  // The target's tokens that have one, ascending, and these in the same order; each of both once.
  const std::vector<Token>& common() const { return common_; }
  const std::vector<Token>& own_of_common() const { return own_of_common_; }
  // Of the smaller vocabulary's tokens, how many the other one has, 0 to 1.
  double overlap() const;
  // Why it is too little to draft with; nothing: it is enough.
  std::optional<std::string> problem() const;

  // Adds what the draft model reads for a token of a text: its own token for it, otherwise those
  // that its tokenizer makes of the token's text; of bytes that are no text those for single bytes,
  // as far as it has them.
  void read(Token target, std::vector<Token>& own) const;

 private:
  const Tokenizer& target_;
  const Tokenizer& draft_;
  std::unordered_map<std::string, Token> draft_bytes_;
  std::vector<Token> common_, own_of_common_;
};

}  // namespace outrider

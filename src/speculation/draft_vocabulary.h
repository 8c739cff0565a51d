// Which tokens a draft model may propose: FR-Spec, Zhao et al. 2025, arXiv:2502.14856. The head
// over a large vocabulary is a large part of the weights that a draft step reads, and most of its
// rows are for rare tokens.

#pragma once

#include <span>
#include <vector>

#include "base/token.h"
#include "text/tokenizer.h"

namespace outrider {

// `size` tokens of the tokenizer, ids ascending; all if it has no more. First the control tokens,
// which end answers and turns; then the most frequent tokens of `corpus`, which may be empty; then
// the lowest ids, because vocabularies are made by merging the most frequent pairs first.
std::vector<Token> frequent_tokens(const Tokenizer& tokenizer, std::span<const Token> corpus,
                                   int size);

// Room for the tokens of texts beside these (LoadOptions::output_room): a text of 30,000 tokens has
// about 4,000 different ones.
inline constexpr int kDraftTokensOfTexts = 8192;

}  // namespace outrider

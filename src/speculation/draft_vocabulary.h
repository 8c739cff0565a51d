// Which tokens a draft model may propose: FR-Spec, Zhao et al. 2025, arXiv:2502.14856. Its head
// over a large vocabulary is a good part of what a draft step reads, and most of its rows are for
// tokens that hardly ever come.

#pragma once

#include <span>
#include <vector>

#include "base/token.h"
#include "text/tokenizer.h"

namespace outrider {

// `size` tokens of the tokenizer's, ascending, or all if it has no more: control tokens, which end
// answers and turns; the most frequent of `corpus`, which may be empty; then the lowest ids, for
// vocabularies are made by merging what is frequent first.
std::vector<Token> frequent_tokens(const Tokenizer& tokenizer, std::span<const Token> corpus,
                                   int size);

// Room for the tokens that texts show besides these (LoadOptions::output_room): of a text of 30,000
// tokens some 4,000 are different ones.
inline constexpr int kDraftTokensOfTexts = 8192;

}  // namespace outrider

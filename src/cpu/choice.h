// The fast twin of numerics/choice.h: the same bits.
//
// The calling thread must round as docs/arithmetic.md, rule 1, asks. Its working memory, some 5 MB
// for 150,000 tokens, stays with it from call to call.

#pragma once

#include <cstddef>
#include <span>

#include "base/token.h"
#include "cpu/isa.h"
#include "numerics/choice.h"

namespace outrider {

Choice choose(std::span<const float> logits, const ChoiceRequest& request, Isa isa);

// The same where only some tokens of a vocabulary have logits: logits[i] is that of token ids[i],
// ids ascending, and all others are at -inf, which costs nothing.
Choice choose_among(std::span<const Token> ids, std::span<const float> logits,
                    std::size_t vocabulary, const ChoiceRequest& request, Isa isa);

}  // namespace outrider

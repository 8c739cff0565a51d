// The fast twin of numerics/choice.h: the same bits.
//
// The calling thread must round as docs/arithmetic.md, rule 1, asks. Its working memory, some 5 MB
// for 150,000 tokens, stays with it from call to call.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/token.h"
#include "cpu/isa.h"
#include "numerics/choice.h"

namespace outrider {

Choice choose(std::span<const float> logits, const ChoiceRequest& request, Isa isa);

// Some tokens of a vocabulary, and where in a row their logits stand.
struct PlacedTokens {
  std::span<const Token> ids;             // ascending
  std::span<const std::uint32_t> places;  // of each
};

// The same where only these have logits. All others are at -inf, which costs nothing.
Choice choose_among(const PlacedTokens& tokens, std::span<const float> logits,
                    std::size_t vocabulary, const ChoiceRequest& request, Isa isa);

}  // namespace outrider

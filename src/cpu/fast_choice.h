// The fast version of numerics/choice.h: the same bits.
//
// The calling thread must round as docs/arithmetic.md, rule 1, asks.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/token.h"
#include "cpu/choice_memory.h"
#include "cpu/isa.h"
#include "numerics/choice.h"

namespace outrider {

// Whether this instruction set has a fast version. Elsewhere the functions below call the
// reference, which allocates as it goes.
bool has_fast_choice(Isa isa);

// Takes all memory that a fast choice with this request over so many tokens needs, so that it
// allocates nothing when it is given these two.
void reserve(const ChoiceRequest& request, std::size_t n_tokens, ChoiceMemory& memory,
             Choice& choice);

// Replaces `choice`.
void choose(std::span<const float> logits, const ChoiceRequest& request, Isa isa,
            ChoiceMemory& memory, Choice& choice);

// Some tokens of a vocabulary, and where in a row their logits stand.
struct PlacedTokens {
  std::span<const Token> ids;             // ascending
  std::span<const std::uint32_t> places;  // of each
};

// The same where only these have logits. All others are at -inf, which costs nothing.
void choose_among(const PlacedTokens& tokens, std::span<const float> logits, std::size_t vocabulary,
                  const ChoiceRequest& request, Isa isa, ChoiceMemory& memory, Choice& choice);

}  // namespace outrider

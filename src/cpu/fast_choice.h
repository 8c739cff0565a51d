// The fast version of numerics/choice.h: the same bits.
//
// The calling thread must round as docs/arithmetic.md, rule 1, asks.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "base/token.h"
#include "cpu/choice_ranking.h"
#include "cpu/isa.h"
#include "cpu/kernels/choice_kernels.h"
#include "numerics/choice.h"

namespace outrider {

// Whether this instruction set has a fast version. Elsewhere the functions below call the
// reference, which allocates as it goes.
bool has_fast_choice(Isa isa);

// Working memory: some 5 MB for 150,000 tokens, used by one choice at a time.
struct ChoiceMemory {
  // Makes it large enough for rows of n_tokens and for the n_best of them. Throws Error or
  // std::bad_alloc; then it is as it was.
  void reserve(std::size_t n_tokens, std::size_t n_best);

  // Every array is a whole number of blocks.
  struct Arrays {
    std::span<float> row;     // processed logits
    std::span<float> logits;  // of the tokens that filters have left (the race, choice_kernels.h)
    std::span<float> values;  // their exponentials, then probabilities
    std::span<RankKey> keys, minima, minima_of_maxima;
    std::span<float> maxima;  // of the race's blocks
    std::span<std::uint32_t> slices, every_slice;
    RankingMemory ranking;
  };
  Arrays arrays;
  std::vector<RaceEntry> best;  // with the capacity for n_best

 private:
  std::size_t n_tokens_ = 0;
  HugeBuffer buffer_;
};

// Makes `memory` and `choice` large enough for choose() with this request over n_tokens tokens,
// which then allocates nothing.
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

// The same where only `tokens` have logits. All others of the vocabulary are at -inf, and take no
// time.
void choose_among(const PlacedTokens& tokens, std::span<const float> logits, std::size_t vocabulary,
                  const ChoiceRequest& request, Isa isa, ChoiceMemory& memory, Choice& choice);

}  // namespace outrider

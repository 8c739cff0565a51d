// A filter keeps the fewest tokens, in the order of a ranking, whose weights add up to a given sum
// (numerics/choice.h, steps 4 to 6). This finds the last of them without sorting a vocabulary.
//
// The sum is of floats, added one after another, so it seems to depend on the whole order. But
// while the sum S stays between two powers of two, its unit u = 2^-23 2^floor(log2 S) stays the
// same, and S + w is exactly S + u * round(w / u): an addition of integers, in any order. The order
// matters in three cases only: a w that lies in the middle between two multiples of u, because then
// rounding depends on S; a sum that crosses a power of two; and the end. A group of neighbours in
// the ranking in which none of these occurs is added at once. A group in which one occurs is split
// at the middle of its range of keys: a radix sort from the top bits that leaves unsorted what need
// not be sorted.

#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "cpu/kernels/choice_kernels.h"

namespace outrider {

struct RankedTokens {
  std::span<const RankKey> keys;    // [tokens, in whole blocks]; kNoKey: not ranked
  std::span<const RankKey> minima;  // of each block of keys
  std::span<const float> weights;   // as many as keys, >= 0; empty: value_of() each key
};

// Working memory: each array [keys + 16].
struct RankingMemory {
  RankedPlace group, rest;
};

// A key that is at least as large as the minima of n blocks, made small by a few steps of
// bisection; the largest possible key if there are fewer than n blocks.
RankKey bound_of_first(const ChoiceKernels& kernels, std::span<const RankKey> minima,
                       std::size_t n);

// What to keep: the fewest tokens, by (key ascending, place ascending), whose weights in float sum
// to at least `enough`. Nothing if all tokens together do not reach it. `expected`: an estimate of
// how many they are.
std::optional<RankCut> fewest_that_reach(const ChoiceKernels& kernels, const RankedTokens& tokens,
                                         float enough, std::size_t expected,
                                         const RankingMemory& memory);

}  // namespace outrider

// Filters keep the fewest tokens of a ranking whose weights, added one after another, reach a sum
// (numerics/choice.h, steps 4 to 6). This finds where they end without sorting a vocabulary.
//
// Float additions look as if they needed the whole order. But while a sum S stays between two
// powers of two, its unit u = 2^-23 2^floor(log2 S) does, and S + w = S + u * round(w / u) exactly,
// an addition of integers, which no order changes. Only a w in the middle between two multiples of
// u, where rounding looks at S, or a sum that crosses a power of two or the end needs to know what
// came before. So a group of neighbours in the ranking is added at once where none of these occurs
// in it, and is parted by the middle bit pattern of its keys where one does: a radix sort from the
// top that leaves alone what need not be sorted.

#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "cpu/kernels/choice_kernels.h"

namespace outrider {

struct RankedTokens {
  std::span<const RankKey> keys;    // [tokens, in whole blocks]; kNoKey: not ranked
  std::span<const RankKey> minima;  // of each block of keys
  std::span<const float> weights;   // as many as keys, >= 0; empty: the values that keys are of
};

// Room to work in: each array [keys + 16].
struct RankingRoom {
  RankedPlace group, rest;
};

// A key that at least n blocks reach, as small as a few steps of bisection make it; the largest key
// there may be if there are not as many.
RankKey bound_of_first(const ChoiceKernels& kernels, std::span<const RankKey> minima,
                       std::size_t n);

// What to keep so that the sum of weights in float, by (key ascending, place ascending), is at
// least `enough` and no earlier; nothing if all together do not reach it. `expected`: a guess at
// how many that are.
std::optional<RankCut> fewest_that_reach(const ChoiceKernels& kernels, const RankedTokens& tokens,
                                         float enough, std::size_t expected,
                                         const RankingRoom& room);

}  // namespace outrider

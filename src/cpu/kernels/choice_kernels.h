// What the fast choice (cpu/fast_choice.h) does to whole vocabularies: its part of the table of
// kernels. The reference has none, because choose_reference works token by token.
//
// The tokens that no filter has removed yet are the race. They are kept in slices: the logits of 16
// ids each, 16 s .. 16 s + 15, those not in the race at -inf, so that an element's place mod 16 is
// its lane and sums of lanes come out as over the whole vocabulary (docs/arithmetic.md, rule 2).
// Four slices are a block. A row as it came from the model is the slices 0, 1, 2, ..., the last one
// perhaps cut short.
//
// Outputs are written in whole blocks: their spans are multiples of 64 at least as long as the
// input, and missing inputs of the last block count as -inf.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "numerics/noise.h"

namespace outrider {

inline constexpr std::size_t kChoiceSlice = 16, kChoiceBlock = 64;
constexpr std::size_t slices_of(std::size_t values) {
  return (values + kChoiceSlice - 1) / kChoiceSlice;
}
constexpr std::size_t blocks_of(std::size_t values) {
  return (values + kChoiceBlock - 1) / kChoiceBlock;
}

// Where a token stands in a ranking: the smaller key is first. `kNoKey`: not ranked.
using RankKey = std::int32_t;
inline constexpr RankKey kNoKey = INT32_MAX;

// Keys by descending value, and back. A float's bits order as integers once those of the negative
// ones are reversed; adding zero makes -0 into +0.
inline RankKey key_of(float value) {
  const auto bits = std::bit_cast<RankKey>(value + 0.0f);
  return bits ^ (bits < 0 ? INT32_MIN : -1);
}
inline float value_of(RankKey key) {
  return std::bit_cast<float>(key ^ (key < 0 ? -1 : INT32_MIN));
}

// Keeps the keys below `key` and of those that equal it the first n_equal.
struct RankCut {
  RankKey key;
  std::size_t n_equal;
};

// Tokens in the race.
struct RaceView {
  std::span<const float> logits;  // [slices][16]; the last slice may be cut short
  std::span<const std::uint32_t>
      slices;  // their numbers, ascending; whole blocks can be read, some functions more
};

// Where the remaining slices of a race are stored, one after another.
struct RacePlace {
  float* logits;
  std::uint32_t* slices;
  float* maxima;  // of each block, the last one perhaps of fewer slices
};

struct RaceEntry {
  float score;
  std::uint32_t place;  // in RaceView::logits
};

// The keys of a ranking and their weights. weights null: the weight of a key is value_of(key).
struct RankedPlace {
  RankKey* keys;
  float* weights;

  RankedPlace operator+(std::size_t n) const {
    return {keys + n, weights == nullptr ? nullptr : weights + n};
  }
};

// What decides whether a group's weights may be added all at once (choice_ranking.cpp).
struct KeyRange {
  RankKey first, last;
};
struct GroupSum {
  KeyRange range;
  float sum;  // of round-to-even(weight * scale): exact below 2^24, else at least 2^24
  bool tie;   // a product lies in the middle between two integers
};

struct ChoiceKernels {
  // maxima[b] = largest of block b, unspecified if any x is NaN. Returns the largest of all, or NaN
  // if any is NaN.
  float (*block_maxima)(std::span<const float> x, std::span<float> maxima);
  // x = -inf where the token's bit is not set; words past the end of `allowed` are 0.
  void (*forbid)(std::span<const std::uint64_t> allowed, std::span<float> x);
  // Copies the slices of the race that have a logit >= bound, smaller logits at -inf, with the
  // largest of each block. Returns how many slices these are. maxima: of race.logits. `to` may be
  // where the race and its maxima are.
  std::size_t (*gather)(const RaceView& race, std::span<const float> maxima, float bound,
                        const RacePlace& to);
  // The same for the tokens with exp(logit - max) >= least, and those at max.
  std::size_t (*gather_likely)(const RaceView& race, std::span<const float> maxima, float max,
                               float least, const RacePlace& to);

  // y = exp(x - max); returns the lane sum of y. y may be x.
  float (*exp_differences)(std::span<const float> x, float max, std::span<float> y);
  // y = x / divisor, -inf where x is. y may be x.
  void (*divide)(std::span<const float> x, float divisor, std::span<float> y);
  // p = p / sum. Returns, with log p = logit - max - log_sum, minus the lane sum of p * log p,
  // fused, p = 0 left out.
  float (*share_with_entropy)(std::span<const float> logits, std::span<float> p, float sum,
                              float max, float log_sum);

  // Keys by descending logit of the tokens in the race, and the smallest of each block.
  void (*keys_by_logit)(std::span<const float> logits, std::span<RankKey> keys,
                        std::span<RankKey> minima);
  // Keys by descending value / sum, and the smallest of each block; values of 0 are not ranked.
  void (*keys_by_share)(std::span<const float> values, float sum, std::span<RankKey> keys,
                        std::span<RankKey> minima);
  // Keys by ascending |-log p - entropy|.
  void (*keys_by_surprise)(std::span<const float> logits, float max, float log_sum, float entropy,
                           std::span<RankKey> keys, std::span<RankKey> minima);
  // How many keys are at most `bound`.
  std::size_t (*count_up_to)(std::span<const RankKey> keys, RankKey bound);
  // Copies the keys with after < key <= last and their weights, if `to` has any, in order. Returns
  // their number. Up to 16 elements past them are overwritten.
  std::size_t (*collect)(std::span<const RankKey> keys, std::span<const float> weights,
                         std::span<const RankKey> minima, RankKey after, RankKey last,
                         RankedPlace to);
  GroupSum (*group_sum)(RankedPlace group, std::size_t n, float scale);
  // Moves the keys <= pivot and their weights to the front, the others to `rest`, in order. Returns
  // how many the former are. Up to 16 elements past both places are overwritten. pivot < kNoKey.
  std::size_t (*partition)(RankedPlace group, std::size_t n, RankKey pivot, RankedPlace rest);
  // Copies the race without the tokens that `cut` does not keep and without slices that become
  // empty, with the largest of each block. Returns how many slices these are. `to` may be where the
  // race is.
  std::size_t (*keep)(const RaceView& race, std::span<const RankKey> keys,
                      std::span<const RankKey> minima, RankCut cut, const RacePlace& to);

  // Of the 16 blocks from `first_block`, as far as there are any: the tokens with logit /
  // temperature + noise >= bar, in any order. Returns their number. maxima: of race.logits; out: at
  // least 1024. Slices of all 16 blocks can be read, whether the race has them or not.
  std::size_t (*scores_at_least)(const RaceView& race, std::span<const float> maxima,
                                 float temperature, const NoiseKey& noise, std::size_t first_block,
                                 float bar, std::span<RaceEntry> out);
};

inline constexpr std::size_t kScoredBlocks = 16;

}  // namespace outrider

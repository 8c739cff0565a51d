#include "cpu/choice_ranking.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace outrider {
namespace {

constexpr RankKey kLowest = std::numeric_limits<RankKey>::min();

// Between two keys, the lower included.
RankKey middle(RankKey low, RankKey high) {
  return static_cast<RankKey>((std::int64_t{low} + high) >> 1);
}

// Walks through a ranking from its beginning, group by group.
class Walk {
 public:
  Walk(const ChoiceKernels& kernels, float enough, const RankingScratch& scratch)
      : kernels_(kernels), enough_(enough), scratch_(scratch) {}

  // Adds the next group, in any order but for equals, which stand as they rank; its order changes.
  std::optional<RankCut> add(std::span<RankKey> keys, std::span<float> weights) {
    for (;;) {
      if (keys.size() <= kFew) return add_sorted(keys, weights);
      const GroupSum group = kernels_.group_sum(keys, weights, units_per_one());
      if (add_at_once(group)) return {};
      if (group.first == group.last) return add_alike(keys.front(), weights);
      const std::size_t n = kernels_.partition(keys, weights, middle(group.first, group.last),
                                               scratch_.key_buffer, scratch_.weight_buffer);
      if (const std::optional<RankCut> cut = add(keys.first(n), weights.first(n))) return cut;
      keys = keys.subspan(n);
      weights = weights.subspan(n);
    }
  }

 private:
  static constexpr std::size_t kFew = 64;
  // Below this a group is always taken apart, so that units_per_one() is a normal float.
  static constexpr float kSmallSum = 0x1p-60f;

  // 1 / u of the sum.
  float units_per_one() const {
    const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(sum_) >> 23) - 127;
    return std::bit_cast<float>(static_cast<std::uint32_t>(127 + 23 - std::max(exponent, -60))
                                << 23);
  }

  bool add_at_once(const GroupSum& group) {
    if (group.tie || !(sum_ >= kSmallSum)) return false;
    const float units = sum_ * units_per_one() + group.sum;
    if (!(units < 0x1p24f)) return false;
    const float sum = units / units_per_one();
    if (sum >= enough_) return false;
    sum_ = sum;
    return true;
  }

  std::optional<RankCut> add_alike(RankKey key, std::span<const float> weights) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      sum_ += weights[i];
      if (sum_ >= enough_) return RankCut{key, i + 1};
    }
    return {};
  }

  std::optional<RankCut> add_sorted(std::span<const RankKey> keys, std::span<const float> weights) {
    // The key above, its sign bit turned round; the place below decides between equals.
    std::array<std::uint64_t, kFew> order;
    for (std::size_t i = 0; i < keys.size(); ++i)
      order[i] = std::uint64_t{static_cast<std::uint32_t>(keys[i]) ^ 0x80000000u} << 32 | i;
    std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keys.size()));
    std::size_t n_equal = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      n_equal = i > 0 && order[i] >> 32 == order[i - 1] >> 32 ? n_equal + 1 : 1;
      const auto at = static_cast<std::uint32_t>(order[i]);
      sum_ += weights[at];
      if (sum_ >= enough_) return RankCut{keys[at], n_equal};
    }
    return {};
  }

  const ChoiceKernels& kernels_;
  const float enough_;
  const RankingScratch& scratch_;
  float sum_ = 0;
};

}  // namespace

RankKey bound_of_first(const ChoiceKernels& kernels, std::span<const RankKey> minima,
                       std::size_t n) {
  RankKey low = kLowest, high = kNoKey - 1;  // fewer than n reach `low`
  if (n > minima.size()) return high;
  while (low + 1 < high) {
    const RankKey bound = middle(low, high);
    const std::size_t count = kernels.count_up_to(minima, bound);
    (count >= n ? high : low) = bound;
    if (count >= n && count <= n + n / 2) break;
  }
  return high;
}

std::optional<RankCut> fewest_that_reach(const ChoiceKernels& kernels, const RankedTokens& tokens,
                                         float enough, std::size_t expected,
                                         const RankingScratch& scratch) {
  Walk walk(kernels, enough, scratch);
  // The first few of a ranking are cheap to find, and often are all.
  RankKey after = kLowest;
  for (std::size_t n = expected; after < kNoKey - 1; n *= 16) {
    const RankKey last =
        n <= tokens.minima.size() / 2 ? bound_of_first(kernels, tokens.minima, n) : kNoKey - 1;
    const std::size_t found = kernels.collect(tokens.keys, tokens.weights, tokens.minima, after,
                                              last, scratch.keys, scratch.weights);
    if (const std::optional<RankCut> cut =
            walk.add(scratch.keys.first(found), scratch.weights.first(found)))
      return cut;
    after = last;
  }
  return {};
}

}  // namespace outrider

#include "cpu/choice_ranking.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

namespace outrider {
namespace {

constexpr RankKey kLowest = std::numeric_limits<RankKey>::min();

// The middle between two keys: `low` itself where they are neighbours.
RankKey middle(RankKey low, RankKey high) {
  return static_cast<RankKey>((std::int64_t{low} + high) >> 1);
}

// Walks through a ranking from its beginning, group by group.
class Walk {
 public:
  Walk(const ChoiceKernels& kernels, float enough) : kernels_(kernels), enough_(enough) {}

  // Adds the next group: n elements with keys of `range`, those with equal keys in the order of
  // their ranking. Both `group` and `spare`, which has n + 16 places, are overwritten. A group that
  // must be split leaves its first part where it is and moves the rest to the beginning of `spare`.
  // The first part then has what is left of `spare` to be split in; the rest has the place where
  // the group was.
  std::optional<RankCut> add(RankedPlace group, std::size_t n, KeyRange range, RankedPlace spare) {
    for (int n_unseen = 0;; ++n_unseen) {
      if (n <= kFew) return add_sorted(group, n);
      if (n_unseen == 2 || !surely_ends_within(group, n, range)) {
        n_unseen = 0;
        const GroupSum sum = kernels_.group_sum(group, n, units_per_one());
        if (add_at_once(sum)) return {};
        if (sum.range.first == sum.range.last) return add_alike(group, n);
        range = sum.range;
      }
      const RankKey pivot = middle(range.first, range.last);
      const std::size_t n_first = kernels_.partition(group, n, pivot, spare);
      const std::size_t n_rest = n - n_first;
      if (const auto cut = add(group, n_first, {range.first, pivot}, spare + n_rest)) return cut;
      std::swap(group, spare);
      n = n_rest;
      range.first = pivot + 1;
    }
  }

 private:
  static constexpr std::size_t kFew = 64;
  // While the sum is below this, every group is split, so that units_per_one() is a normal float.
  static constexpr float kSmallSum = 0x1p-60f;

  // 1 / u of the sum.
  float units_per_one() const {
    const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(sum_) >> 23) - 127;
    return std::bit_cast<float>(static_cast<std::uint32_t>(127 + 23 - std::max(exponent, -60))
                                << 23);
  }

  // Whether even n values of the lowest rank in this range would take the sum well past the next
  // power of two or past the end. Then group_sum() would only say that the group must be split, so
  // it is left out, two times of three at most.
  bool surely_ends_within(RankedPlace group, std::size_t n, KeyRange range) const {
    if (group.weights != nullptr || range.first == range.last) return false;
    const float least = sum_ + 0.98f * static_cast<float>(n) * value_of(range.last);
    return least >= enough_ || least * units_per_one() >= 0x1p24f;
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

  static float weight(RankedPlace at) {
    return at.weights != nullptr ? *at.weights : value_of(*at.keys);
  }

  std::optional<RankCut> add_alike(RankedPlace group, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) {
      sum_ += weight(group + i);
      if (sum_ >= enough_) return RankCut{*group.keys, i + 1};
    }
    return {};
  }

  std::optional<RankCut> add_sorted(RankedPlace group, std::size_t n) {
    // The key in the high half, with its sign bit flipped so that it orders as an unsigned number;
    // the place in the low half decides between equal keys.
    std::array<std::uint64_t, kFew> order;
    for (std::size_t i = 0; i < n; ++i)
      order[i] = std::uint64_t{static_cast<std::uint32_t>(group.keys[i]) ^ 0x80000000u} << 32 | i;
    std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(n));
    std::size_t n_equal = 0;
    for (std::size_t i = 0; i < n; ++i) {
      n_equal = i > 0 && order[i] >> 32 == order[i - 1] >> 32 ? n_equal + 1 : 1;
      const RankedPlace at = group + static_cast<std::uint32_t>(order[i]);
      sum_ += weight(at);
      if (sum_ >= enough_) return RankCut{*at.keys, n_equal};
    }
    return {};
  }

  const ChoiceKernels& kernels_;
  const float enough_;
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
                                         const RankingMemory& memory) {
  Walk walk(kernels, enough);
  RankedPlace group = memory.group, rest = memory.rest;
  if (tokens.weights.empty()) group.weights = rest.weights = nullptr;
  // The first few of a ranking are cheap to find, and often they are all that is needed.
  RankKey after = kLowest;
  for (std::size_t n = expected; after < kNoKey - 1; n *= 16) {
    const RankKey last =
        n <= tokens.minima.size() / 2 ? bound_of_first(kernels, tokens.minima, n) : kNoKey - 1;
    const std::size_t n_found =
        kernels.collect(tokens.keys, tokens.weights, tokens.minima, after, last, group);
    if (const auto cut = walk.add(group, n_found, {after, last}, rest)) return cut;
    after = last;
  }
  return {};
}

}  // namespace outrider

// Numbers that are the same on every system for the same seed: the standard's distributions are
// not.

#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace outrider {

// The seed of one of many random things: SplitMix64 (Steele, Lea, Flood 2014) over the three.
inline std::uint64_t seed_of(std::uint64_t seed, std::uint64_t use, std::uint64_t number) {
  std::uint64_t state = seed;
  for (const std::uint64_t part : {use, number}) {
    state += 0x9e3779b97f4a7c15 + part;
    state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
    state = (state ^ state >> 27) * 0x94d049bb133111eb;
    state ^= state >> 31;
  }
  return state;
}

class SeededRandom {
 public:
  explicit SeededRandom(std::uint64_t seed) : generator_(seed) {}

  // 0 to n - 1; n > 0. The bias is below n / 2^64.
  std::size_t below(std::size_t n) {
    CHECK(n > 0);
    return static_cast<std::size_t>(generator_() % n);
  }
  // first to last, both included; first <= last.
  int between(int first, int last) {
    return first + static_cast<int>(below(static_cast<std::size_t>(last - first) + 1));
  }
  template <typename Range>
  const auto& one_of(const Range& range) {
    return range[below(std::size(range))];
  }
  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t n = values.size(); n > 1; --n) std::swap(values[n - 1], values[below(n)]);
  }

 private:
  std::mt19937_64 generator_;  // the standard says what it gives
};

}  // namespace outrider

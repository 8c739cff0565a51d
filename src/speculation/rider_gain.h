// What rows that ride along bring in later steps. Each doubling of their number brings about as
// many tokens per step more: Fu et al. 2024, arXiv:2402.02057, section 4.

#pragma once

#include <cmath>

namespace outrider {

struct RiderGain {
  // Of recent steps: tokens that came from riders' answers alone, and doublings.
  double tokens = 0, doublings = 0;

  static double doublings_of(int n_riders) { return std::log2(1 + n_riders); }

  // Tokens that a step with so many riders brings. Where nothing is known what 60 of them brought a
  // 0.5B that wrote code, with the weight of a few steps. What was long ago is forgotten, so that
  // riders are tried again.
  double expected(int n_riders) const {
    constexpr double kPerDoubling = 0.1, kWeight = 16;
    return (tokens + kWeight * kPerDoubling) / (doublings + kWeight) * doublings_of(n_riders);
  }

  void observe(int n_riders, int n_tokens) {
    constexpr double kKept = 1023.0 / 1024;  // of the past, by a step
    tokens = kKept * tokens + n_tokens;
    doublings = kKept * doublings + doublings_of(n_riders);
  }
};

}  // namespace outrider

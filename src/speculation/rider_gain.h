// What rows that ride along bring in later steps. Each doubling of their number brings about as
// many tokens per step more: Fu et al. 2024, arXiv:2402.02057, section 4.

#pragma once

#include <cmath>

namespace outrider {

struct RiderGain {
  // Of recent steps: tokens that came from riders' answers alone, and doublings. At first what the
  // paper found for models of 7B, with the weight of a few steps.
  double tokens = 0.15 * 32, doublings = 32;

  static double doublings_of(int n_riders) { return std::log2(1 + n_riders); }
  // Tokens that a step with so many riders brings.
  double expected(int n_riders) const { return tokens / doublings * doublings_of(n_riders); }

  void observe(int n_riders, int n_tokens) {
    constexpr double kKept = 255.0 / 256;  // of the past, by a step with riders
    if (n_riders > 0) {
      tokens *= kKept;
      doublings = kKept * doublings + doublings_of(n_riders);
    }
    tokens += n_tokens;
  }
};

}  // namespace outrider

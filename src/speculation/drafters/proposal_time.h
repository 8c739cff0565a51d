// The time that a proposal takes, for drafters whose proposals all take about the same.

#pragma once

#include <cstddef>

#include "speculation/drafter.h"

namespace outrider {

class ProposalTime {
 public:
  // Proposals for so many sequences took so long together.
  void add(double ms, std::size_t n_sequences) {
    if (n_sequences == 0) return;
    const double each = ms / static_cast<double>(n_sequences);
    mean_ms_ = mean_ms_ == 0 ? each : mean_ms_ + kRecent * (each - mean_ms_);
  }
  DraftCost cost(int n_sequences) const { return {.fixed_ms = n_sequences * mean_ms_}; }

 private:
  static constexpr double kRecent = 0.1;  // the weight of the last one
  double mean_ms_ = 0;                    // for one sequence
};

}  // namespace outrider

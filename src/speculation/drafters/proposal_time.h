// The time that a proposal takes, for drafters whose proposals all take about the same.

#pragma once

#include <cstddef>

#include "speculation/drafter.h"

namespace outrider {

class ProposalTime {
 public:
  // Proposals for so many texts took so long together.
  void add(double ms, std::size_t n_texts) {
    if (n_texts == 0) return;
    const double each = ms / static_cast<double>(n_texts);
    mean_ms_ = mean_ms_ == 0 ? each : mean_ms_ + kRecent * (each - mean_ms_);
  }
  DraftCost cost(int n_texts) const { return {.fixed_ms = n_texts * mean_ms_}; }

 private:
  static constexpr double kRecent = 0.1;  // the weight of the last one
  double mean_ms_ = 0;                    // for one text
};

}  // namespace outrider

// Working memory of the fast choice (cpu/fast_choice.h): some 5 MB for 150,000 tokens, used by one
// choice at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "cpu/choice_ranking.h"
#include "cpu/kernels/choice_kernels.h"

namespace outrider {

struct ChoiceMemory {
  // Makes it large enough for rows of n_tokens and for the n_best of them. Throws Error or
  // std::bad_alloc; then it is as it was.
  void reserve(std::size_t n_tokens, std::size_t n_best);

  // Every array is a whole number of blocks.
  struct Arrays {
    std::span<float> row;     // processed logits
    std::span<float> logits;  // of the tokens in the race, once filters have worked
    std::span<float> values;  // their exponentials, then probabilities
    std::span<RankKey> keys, minima, minima_of_maxima;
    std::span<float> maxima;  // of the race's blocks
    std::span<std::uint32_t> slices, every_slice;
    RankingMemory ranking;
  };
  Arrays arrays;
  std::vector<RaceEntry> best;  // with the capacity for n_best

 private:
  std::size_t n_tokens_ = 0;
  HugeBuffer buffer_;
};

}  // namespace outrider

// The tokens that a trimmed output matrix has logits for (LoadOptions::output_ids).

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/fast_choice.h"
#include "model/backend.h"

namespace outrider {

class Outputs {
 public:
  Outputs(const LoadOptions& options, int vocabulary);

  bool empty() const { return ids_.empty(); }
  PlacedTokens tokens() const { return {ids_, places_}; }

  // Adds new tokens at the end of the matrix, as many as it can take, and returns them.
  std::vector<Token> add(std::span<const Token> tokens);
  // Whether any was added.
  bool remove_added();

 private:
  std::vector<Token> ids_;             // ascending
  std::vector<std::uint32_t> places_;  // in the matrix
  std::size_t n_first_, n_max_;
  int vocabulary_;
};

}  // namespace outrider

#include "model/block_rows.h"

namespace outrider {

std::vector<Row> block_rows(const BlockInput& block, const BlockPlace& place, int n_guesses) {
  std::vector<Row> rows;
  for (int i = 0; i < block.n_rows; ++i) {
    const int guess = i - block.first_guess();
    rows.push_back({.sequence = place.sequence,
                    .token = i == 0 ? place.anchor : block.mask,
                    .position = place.position + i,
                    .parent = i == 0 ? place.parent : EarlierRow{place.first_row + i - 1},
                    .wants_logits = guess >= 0 && guess < n_guesses,
                    .block_end = place.first_row + block.n_rows - 1});
  }
  return rows;
}

}  // namespace outrider

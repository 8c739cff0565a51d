// The rows of a block that a head is asked for (BlockInput in model/spec.h).

#pragma once

#include <vector>

#include "model/backend.h"

namespace outrider {

struct BlockPlace {
  SequenceId sequence;
  Token anchor = 0;  // the text's last token
  int position = 0;  // the anchor's
  Parent parent = CommittedEnd{};
  int first_row = 0;  // how many rows of the batch come before the block's
};

// The anchor and as many masks as the block has; the first n_guesses rows that guess want logits.
std::vector<Row> block_rows(const BlockInput& block, const BlockPlace& place, int n_guesses);

}  // namespace outrider

// Passes timed for their own sake, while no sequence runs: what decides how much is drafted, and
// what bench generate reports.

#pragma once

#include <vector>

#include "model/backend.h"

namespace outrider {

// Milliseconds of one pass over a chain of n_rows rows that continues the sequence, and of the
// choices at its last n_logits rows. It must have n_rows free slots and as many positions left; its
// scratch rows are gone afterwards. before: of each row, for a head.
double time_pass(Backend& backend, SequenceId sequence, int n_rows, int n_logits,
                 const ForwardOptions& options = {}, const StateBefore& before = KeptFeatures{});

// Numbers of rows at which to time passes: close together where times bend, up to rows_max or 96,
// whichever is less; at last 17 and 33, with which some kernels begin another 16 rows.
std::vector<int> timed_rows(int rows_max);

}  // namespace outrider

// Passes timed for their own sake, while no text is worked on: what decides how much is drafted,
// and what bench generate reports.

#pragma once

#include <vector>

#include "model/backend.h"

namespace outrider {

// Milliseconds of one pass over a chain of n_rows rows that continues the sequence's committed
// text, and of the choices at its last n_logits rows. The sequence must have n_rows free slots and
// as many positions left in its context; its scratch rows are gone afterwards.
double time_pass(Backend& backend, SequenceId sequence, int n_rows, int n_logits);

// Numbers of rows at which to time passes of at most rows_max rows: close together where times
// bend, and rows_max itself, if it is at most 96. At last those with which another tile begins,
// where kernels take rows by sixteens.
std::vector<int> timed_rows(int rows_max);

}  // namespace outrider

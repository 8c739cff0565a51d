// A pass timed for its own sake, before any text is worked on: how long passes take decides how
// much is drafted.

#pragma once

#include "model/backend.h"

namespace outrider {

// Milliseconds of one pass over a chain of n_rows rows that continues the sequence's committed
// text, and of the choices at its last n_logits rows. The sequence must have n_rows free slots and
// as many positions left in its context; its scratch rows are gone afterwards.
double time_pass(Backend& backend, SequenceId sequence, int n_rows, int n_logits);

}  // namespace outrider

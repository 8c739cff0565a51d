#pragma once

#include <compare>

namespace outrider {

// A text with a cache of its own.
struct SequenceId {
  int value = -1;
  friend auto operator<=>(SequenceId, SequenceId) = default;
};

// A row's place in its sequence's scratch until the sequence commits, discards or truncates.
struct SlotId {
  int value = -1;
  friend auto operator<=>(SlotId, SlotId) = default;
};

}  // namespace outrider

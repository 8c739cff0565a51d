#pragma once

#include <array>
#include <compare>
#include <cstdint>

namespace outrider {

// A sequence's number in a cache.
struct SequenceId {
  int value = -1;
  friend auto operator<=>(SequenceId, SequenceId) = default;
};

// A row's place in its sequence's scratch until the sequence commits, discards or truncates.
struct SlotId {
  int value = -1;
  friend auto operator<=>(SlotId, SlotId) = default;
};

// A sequence shares cached pages only with sequences of the same scope. 128 bits, so that a digest
// of a user's key and salt can stand for a scope.
struct CacheScope {
  std::array<std::uint64_t, 2> value = {};
  friend auto operator<=>(CacheScope, CacheScope) = default;
};

}  // namespace outrider

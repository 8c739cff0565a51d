#include "cpu/batch.h"

#include "base/error.h"

namespace outrider {

std::optional<SlotId> parent_slot(std::span<const Row> rows, std::size_t row,
                                  std::span<const SlotId> slots) {
  if (const auto* earlier = std::get_if<EarlierRow>(&rows[row].parent)) {
    CHECK(earlier->row >= 0 && static_cast<std::size_t>(earlier->row) < row);
    CHECK(rows[earlier->row].sequence == rows[row].sequence);
    return slots[earlier->row];
  }
  if (const auto* slot = std::get_if<SlotId>(&rows[row].parent)) return *slot;
  return std::nullopt;
}

RowContext context_of(const Cache& cache, SequenceId sequence, SlotId slot) {
  return {.position = cache.position(sequence, slot),
          .committed = cache.committed(sequence),
          .pages = cache.pages(sequence),
          .path = cache.path(sequence, slot)};
}

}  // namespace outrider

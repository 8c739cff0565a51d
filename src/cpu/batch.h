// The rows of a pass in the cache.

#pragma once

#include <optional>
#include <span>

#include "cache/cache.h"
#include "cpu/attention_plan.h"
#include "model/backend.h"

namespace outrider {

// The scratch of a batch, which goes if the batch cannot be computed.
class ScratchOfBatch {
 public:
  ScratchOfBatch(Cache& cache, std::span<const Row> rows) : cache_(cache), rows_(rows) {}
  ~ScratchOfBatch() {
    if (is_kept_) return;
    for (const Row& row : rows_) cache_.discard(row.sequence);
  }
  ScratchOfBatch(const ScratchOfBatch&) = delete;
  ScratchOfBatch& operator=(const ScratchOfBatch&) = delete;

  void keep() { is_kept_ = true; }

 private:
  Cache& cache_;
  const std::span<const Row> rows_;
  bool is_kept_ = false;
};

// The slot that a row continues, given those of the rows before it; nothing: the committed end.
std::optional<SlotId> parent_slot(std::span<const Row> rows, std::size_t row,
                                  std::span<const SlotId> slots);

// What a row in this slot may see.
RowContext context_of(const Cache& cache, SequenceId sequence, SlotId slot);

}  // namespace outrider

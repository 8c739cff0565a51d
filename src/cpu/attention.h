// Attention of rows over the paged cache and their ancestors in scratch (docs/arithmetic.md,
// "Attention").

#pragma once

#include <span>
#include <vector>

#include "cache/cache.h"
#include "cpu/cache_memory.h"
#include "cpu/kernels/kernels.h"
#include "model/spec.h"

namespace outrider {

// What one row may see: the committed positions [0, committed) of its sequence, then its path in
// scratch, itself last.
struct RowContext {
  int position = 0;
  int committed = 0;
  std::span<const int> pages;
  std::vector<CacheRun> path;
};

// Working memory of one thread; grows to what the longest path needs and is reused.
struct AttentionScratch {
  std::vector<float> scores, path_scores, tile, span, total;
};

// The query heads that share kv head `kv_head`: queries and out are [n_heads /
// n_kv_heads][head_dim].
void attend(const VectorKernels& kernels, CacheMemory& memory, CacheType type,
            const Attention& attention, int layer, int kv_head, const RowContext& row,
            MatrixView<const float> queries, MatrixView<float> out, AttentionScratch& scratch);

}  // namespace outrider

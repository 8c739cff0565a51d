#include "cpu/paged_attention.h"

#include <algorithm>
#include <utility>

#include "cpu/attention_block.h"
#include "numerics/attention.h"

namespace outrider {

PagedAttention::PagedAttention(const ModelSpec& spec, const Kernels& kernels, CacheMemory& memory,
                               int n_threads)
    : kernels_(kernels),
      memory_(memory),
      plan_(spec, n_threads),
      threads_(n_threads),
      done_(std::make_unique<std::atomic<std::size_t>[]>(n_threads)) {}

void PagedAttention::begin_pass(std::vector<const RowContext*> rows) {
  plan_.begin_pass(std::move(rows));
}

template <typename Format>
void PagedAttention::attend_as(const Attention& attention, int layer, int thread,
                               MatrixView<const float> queries, MatrixView<float> out) {
  Thread& own = threads_[thread];
  plan_.list_items(attention, own.items);
  const std::size_t total = own.items.back().first_cost + own.items.back().cost();
  for (const AttentionPlan::Item& item : own.items) {
    const Range tiles = plan_.share_of(item, total, thread);
    if (tiles.begin == tiles.end) continue;
    BlockAttention<Format> block(kernels_, memory_, plan_, attention, layer, item.kv_head,
                                 *item.block, queries, own.memory);
    if (tiles.end - tiles.begin == static_cast<std::size_t>(item.end_tile - item.first_tile)) {
      Merging merging = block.merging();
      block.run(tiles, [&](int tile) { return merging.at(tile / kSpanTiles); });
      block.write(merging.finish(), item.kv_head, out);
      continue;
    }

    // Shared: what cannot be merged yet is kept, and the last thread to come merges.
    const std::size_t head_dim = attention.head_dim;
    const std::size_t floats = state_floats(block.size(), head_dim);
    const bool begins = static_cast<int>(tiles.begin) == item.first_tile;
    Segment& segment = begins ? own.begun : own.continued;
    segment.spans.clear();
    segment.states.resize((kSpanTiles + (tiles.end - tiles.begin) / kSpanTiles + 2) * floats);
    block.run(tiles, [&](int tile) {
      const int span = tile / kSpanTiles;
      const int span_begin = std::max(span * kSpanTiles, item.first_tile);
      const bool began_elsewhere = span_begin < static_cast<int>(tiles.begin);
      const bool is_new = began_elsewhere || segment.spans.empty() || segment.spans.back() != span;
      if (is_new) segment.spans.push_back(span);
      const AttentionSums state =
          sums_at(&segment.states[(segment.spans.size() - 1) * floats], block.size(), head_dim);
      return MergeInto{state, is_new};
    });
    std::size_t first = thread, n_shares = 0;
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      const Range share = plan_.share_of(item, total, t);
      if (share.begin == share.end) continue;
      first = std::min(first, t);
      ++n_shares;
    }
    if (done_[first].fetch_add(1, std::memory_order_acq_rel) + 1 < n_shares) continue;
    done_[first].store(0, std::memory_order_relaxed);
    Merging merging = block.merging();
    for (std::size_t t = first, left = n_shares; left > 0; ++t) {
      const Range share = plan_.share_of(item, total, t);
      if (share.begin == share.end) continue;
      --left;
      Segment& part = t == first ? threads_[t].begun : threads_[t].continued;
      for (std::size_t at = 0; at < part.spans.size(); ++at) {
        merge(kernels_.attention, sums_at(&part.states[at * floats], block.size(), head_dim),
              merging.at(part.spans[at]));
      }
    }
    block.write(merging.finish(), item.kv_head, out);
  }
}

void PagedAttention::attend(const Attention& attention, int layer, int thread,
                            MatrixView<const float> queries, MatrixView<float> out) {
  switch (memory_.type(layer)) {
    case CacheType::f16:
      return attend_as<FloatFormat<Half>>(attention, layer, thread, queries, out);
    case CacheType::f32:
      return attend_as<FloatFormat<float>>(attention, layer, thread, queries, out);
    case CacheType::q8_0: return attend_as<Q8Format>(attention, layer, thread, queries, out);
  }
}

}  // namespace outrider

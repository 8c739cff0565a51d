#include "cpu/paged_attention.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "cpu/attention_block.h"
#include "numerics/attention.h"

namespace outrider {
namespace {

// States that a thread may have to keep of so many tiles of an item that others share: one for each
// span, but one for each tile of a span that begins with another thread, whose tiles are merged
// before.
std::size_t most_states(std::size_t n_tiles) {
  return std::min<std::size_t>(n_tiles, kSpanTiles + n_tiles / kSpanTiles + 2);
}

// f.operator()<Format>() with the format of a type of cache.
template <typename F>
auto with_format(CacheType type, const F& f) {
  switch (type) {
    case CacheType::f16: return f.template operator()<FloatFormat<Half>>();
    case CacheType::f32: return f.template operator()<FloatFormat<float>>();
    case CacheType::q8_0: return f.template operator()<Q8Format>();
  }
  CHECK(false);
}

}  // namespace

PagedAttention::PagedAttention(const ModelSpec& spec, const Kernels& kernels, CacheMemory& memory,
                               int n_threads)
    : kernels_(kernels),
      memory_(memory),
      plan_(spec, n_threads),
      threads_(n_threads),
      done_(std::make_unique<std::atomic<std::size_t>[]>(n_threads)) {}

void PagedAttention::begin_pass(std::vector<const RowContext*> rows) {
  plan_.begin_pass(std::move(rows));
  // Every thread gets what the largest block takes, and two of the largest segments.
  std::size_t of_block = 0, n_states = 0, n_bytes = 0;
  for (const AttentionPlan::Work& work : plan_.works()) {
    for (const AttentionPlan::Block& block : plan_.blocks())
      of_block = std::max(of_block, block_bytes(block, work));
    for (const AttentionPlan::Item& item : work.items) {
      const std::size_t states = most_states(plan_.most_tiles(work, item));
      const std::size_t queries =
          item.tile_cost() * work.attention.n_heads / work.attention.n_kv_heads;
      n_states = std::max(n_states, states);
      n_bytes = std::max(n_bytes, states * sums_bytes(queries, work.attention.value_dim));
    }
  }
  for (Thread& thread : threads_) {
    const auto take_segments = [&](BumpAllocator memory) {
      for (Segment* segment : {&thread.continued, &thread.begun}) {
        segment->spans = memory.take<int>(n_states);
        segment->states = memory.take<std::byte>(n_bytes);
      }
      return memory;
    };
    const std::size_t bytes = take_segments(BumpAllocator()).used_bytes() + of_block;
    if (thread.memory.size() < bytes) thread.memory = HugeBuffer(bytes, /*is_filled=*/false);
    thread.rest = take_segments(BumpAllocator(thread.memory.as<std::byte>()));
  }
}

std::size_t PagedAttention::block_bytes(const AttentionPlan::Block& block,
                                        const AttentionPlan::Work& work) const {
  const int committed = plan_.context(block.rows.begin).committed;
  return with_format(memory_.type(work.first_layer), [&]<typename Format>() {
    BumpAllocator counter;
    const BlockMemory<Format> counted(block, committed, work.attention, counter);
    return counter.used_bytes();
  });
}

template <typename Format>
void PagedAttention::attend_as(const Attention& attention, int layer, int thread,
                               MatrixView<const float> queries, MatrixView<float> out) {
  Thread& own = threads_[thread];
  const AttentionPlan::Work& work = plan_.work(layer);
  for (const AttentionPlan::Item& item : work.items) {
    const Range tiles = plan_.share_of(work, item, thread);
    if (tiles.begin == tiles.end) continue;
    BlockAttention<Format> block(kernels_, memory_, plan_, attention, layer, item.kv_head,
                                 *item.block, queries, own.rest);
    if (tiles.end - tiles.begin == static_cast<std::size_t>(item.end_tile - item.first_tile)) {
      Merging merging = block.merging();
      block.run(tiles, [&](int tile) { return merging.at(tile / kSpanTiles); });
      block.write(merging.finish(), item.kv_head, out);
      continue;
    }

    // Shared: what cannot be merged yet is kept, and the last thread to finish merges.
    const std::size_t bytes = sums_bytes(block.size(), attention.value_dim);
    const auto state = [&](const Segment& segment, std::size_t at) {
      BumpAllocator memory(segment.states.subspan(at * bytes, bytes));
      return take_sums(block.size(), attention.value_dim, memory);
    };
    const bool begins = static_cast<int>(tiles.begin) == item.first_tile;
    Segment& segment = begins ? own.begun : own.continued;
    segment.n_states = 0;
    block.run(tiles, [&](int tile) {
      const int span = tile / kSpanTiles;
      const int span_begin = std::max(span * kSpanTiles, item.first_tile);
      const bool began_elsewhere = span_begin < static_cast<int>(tiles.begin);
      const bool is_new =
          began_elsewhere || segment.n_states == 0 || segment.spans[segment.n_states - 1] != span;
      if (is_new) segment.spans[segment.n_states++] = span;
      return MergeInto{state(segment, segment.n_states - 1), is_new};
    });
    std::size_t first = thread, n_shares = 0;
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      const Range share = plan_.share_of(work, item, t);
      if (share.begin == share.end) continue;
      first = std::min(first, t);
      ++n_shares;
    }
    if (done_[first].fetch_add(1, std::memory_order_acq_rel) + 1 < n_shares) continue;
    done_[first].store(0, std::memory_order_relaxed);
    Merging merging = block.merging();
    for (std::size_t t = first, left = n_shares; left > 0; ++t) {
      const Range share = plan_.share_of(work, item, t);
      if (share.begin == share.end) continue;
      --left;
      Segment& part = t == first ? threads_[t].begun : threads_[t].continued;
      for (std::size_t at = 0; at < part.n_states; ++at)
        merge(kernels_.attention, state(part, at), merging.at(part.spans[at]));
    }
    block.write(merging.finish(), item.kv_head, out);
  }
}

void PagedAttention::attend(const Attention& attention, int layer, int thread,
                            MatrixView<const float> queries, MatrixView<float> out) {
  with_format(memory_.type(layer), [&]<typename Format>() {
    attend_as<Format>(attention, layer, thread, queries, out);
  });
}

}  // namespace outrider

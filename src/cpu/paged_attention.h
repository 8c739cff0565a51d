// Attention of the rows of a pass over the paged cache and their ancestors in scratch
// (docs/arithmetic.md, "Attention"), by all threads.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "base/threads.h"
#include "cpu/attention_plan.h"
#include "cpu/bump_allocator.h"
#include "cpu/cache_memory.h"
#include "cpu/kernels/kernels.h"
#include "model/spec.h"

namespace outrider {

class PagedAttention {
 public:
  // All references must outlive this object.
  PagedAttention(const ModelSpec& spec, const Kernels& kernels, CacheMemory& memory, int n_threads);

  // The rows of the next pass, which must outlive it. One thread calls this before attend(). Takes
  // all memory that the pass needs: throws Error or std::bad_alloc if there is not enough.
  void begin_pass(std::vector<const RowContext*> rows);

  // All threads call this for a layer, with a barrier before and after it: each computes a part.
  // Where threads share the tiles of a block and kv head, the last one to finish merges them, so
  // that nobody waits. queries: [rows][n_heads * key_dim]; out: [rows][n_heads * value_dim].
  void attend(const Attention& attention, int layer, int thread, MatrixView<const float> queries,
              MatrixView<float> out);

 private:
  // A thread's part of an item that several threads share: states of tiles and of spans of tiles,
  // in order.
  struct Segment {
    std::span<int> spans;         // the span of each state
    std::span<std::byte> states;  // [spans][sums_bytes()]
    std::size_t n_states = 0;
  };
  struct Thread {
    HugeBuffer memory;
    // Of an item that an earlier thread began, and of one that the next thread goes on with.
    Segment continued, begun;
    BumpAllocator rest;  // of the memory: for one block at a time
  };

  std::size_t block_bytes(const AttentionPlan::Block& block, const AttentionPlan::Work& work) const;

  template <typename Format>
  void attend_as(const Attention& attention, int layer, int thread, MatrixView<const float> queries,
                 MatrixView<float> out);

  const Kernels& kernels_;
  CacheMemory& memory_;
  AttentionPlan plan_;
  std::vector<Thread> threads_;
  // By the first thread that shares an item: how many are done with it.
  std::unique_ptr<std::atomic<std::size_t>[]> done_;
};

}  // namespace outrider

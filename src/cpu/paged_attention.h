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
#include "cpu/cache_memory.h"
#include "cpu/kernels/kernels.h"
#include "model/spec.h"

namespace outrider {

class PagedAttention {
 public:
  // All references must outlive this object.
  PagedAttention(const ModelSpec& spec, const Kernels& kernels, CacheMemory& memory, int n_threads);

  // The rows of the next pass, by one thread; they stay where they are until it ends.
  void begin_pass(std::vector<const RowContext*> rows);

  // All threads call this for a layer, between barriers: each computes a part, and of those that
  // share a head's tiles the last to finish merges them, so that nobody waits. queries and out:
  // [rows][n_heads * head_dim].
  void attend(const Attention& attention, int layer, int thread, MatrixView<const float> queries,
              MatrixView<float> out);

 private:
  // A thread's part of an item that several threads share: states of tiles and of spans of tiles,
  // in order.
  struct Segment {
    std::vector<int> spans;     // of each state
    std::vector<float> states;  // [spans][state floats]
  };
  struct Thread {
    std::vector<AttentionPlan::Item> items;  // of the layer
    HugeBuffer memory;                       // of the current item; grows
    // Of the item that a thread before began, and of the one that goes on in the next thread.
    Segment continued, begun;
  };

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

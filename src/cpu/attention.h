// Attention of the rows of a pass over the paged cache and their ancestors in scratch
// (docs/arithmetic.md, "Attention").
//
// Rows of one sequence are taken in blocks, whose queries meet each committed page together. Their
// own keys lie in scratch, where rows are parted into chains: runs of rows of which each is the
// parent of the next, as all rows of a prompt are. A chain's rows have one path, of which earlier
// rows see less.

#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/huge_buffer.h"
#include "base/threads.h"
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
  template <typename Format>
  friend class BlockAttention;

  // Rows [begin, end) of order_ that lie in one sequence.
  struct Block {
    Range rows, chains;
    int first_position = 0, last_position = 0;
  };
  // A block's tiles for one kv head.
  struct Item {
    const Block* block;
    int kv_head;
    int first_tile, end_tile;
    std::size_t first_cost;  // of all items before it

    std::size_t tile_cost() const { return block->rows.end - block->rows.begin; }
    std::size_t cost() const { return (end_tile - first_tile) * tile_cost(); }
  };
  // A thread's part of an item that several threads share: states of tiles and of spans of tiles,
  // in order.
  struct Segment {
    std::vector<int> spans;     // of each state
    std::vector<float> states;  // [spans][state floats]
  };
  struct Thread {
    std::vector<Item> items;  // of the layer
    HugeBuffer memory;        // of the current item; grows
    // Of the item that a thread before began, and of the one that goes on in the next thread.
    Segment continued, begun;
  };

  template <typename Format>
  void attend_as(const Attention& attention, int layer, int thread, MatrixView<const float> queries,
                 MatrixView<float> out);
  void list_items(const Attention& attention, std::vector<Item>& items) const;
  // The tiles of `item` that are thread `thread`'s.
  Range share_of(const Item& item, std::size_t total_cost, std::size_t thread) const;

  const Kernels& kernels_;
  CacheMemory& memory_;
  std::size_t rows_a_block_;
  std::vector<Thread> threads_;
  // By the first thread that shares an item: how many are done with it.
  std::unique_ptr<std::atomic<std::size_t>[]> done_;

  std::vector<const RowContext*> rows_;
  std::vector<std::size_t> order_;  // rows by sequence, in it by chain
  std::vector<Range> chains_;       // of order_
  std::vector<Block> blocks_;
  std::unordered_map<std::size_t, std::size_t> row_at_;  // the row that wrote a place
};

}  // namespace outrider

// The rows of a pass in the order in which attention takes them, and the division of their tiles
// among threads.
//
// Rows of one sequence are taken in blocks, whose queries meet each committed page together. Their
// own keys lie in scratch, where rows are parted into chains: runs of rows of which each is the
// parent of the next, as all rows of a prompt are. A chain's rows have one path, of which earlier
// rows see less.

#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/threads.h"
#include "cache/cache.h"
#include "model/spec.h"

namespace outrider {

// A page of the cache is a tile.
inline constexpr int kTilePositions = kPagePositions;
inline int tile_of(int position) {
  return position / kTilePositions;
}

// What one row may see: the committed positions [0, committed) of its sequence, then its path in
// scratch, itself last.
struct RowContext {
  int position = 0;
  int committed = 0;
  std::span<const int> pages;
  std::vector<CacheRun> path;
};

class AttentionPlan {
 public:
  // n_parts: into which a layer's tiles are divided.
  AttentionPlan(const ModelSpec& spec, int n_parts);

  // They stay where they are until the pass ends.
  void begin_pass(std::vector<const RowContext*> rows);

  // Rows by sequence, in it by chain: the number in the pass of the one at a place, and its
  // context.
  std::size_t row(std::size_t place) const { return order_[place]; }
  const RowContext& context(std::size_t place) const { return *rows_[order_[place]]; }
  // Places.
  std::span<const Range> chains() const { return chains_; }

  // Places `rows`, which lie in one sequence, in part or all of chains()[chains].
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
  // Of a layer.
  void list_items(const Attention& attention, std::vector<Item>& items) const;
  // The tiles of `item` that are part `part`'s; total_cost: of all items.
  Range share_of(const Item& item, std::size_t total_cost, std::size_t part) const;

 private:
  // Places of the rows of one sequence, and their first chain.
  struct Sequence {
    Range rows;
    std::size_t first_chain;
  };
  std::vector<Sequence> order_rows();
  // Rows are cut into as few blocks as registers and caches like, times `cuts`, so that short
  // contexts, too, have tiles enough to be divided evenly.
  std::size_t cuts_for(std::span<const Sequence> sequences) const;
  std::size_t n_blocks(const Sequence& sequence, std::size_t cuts) const;
  void cut_into_blocks(const Sequence& sequence, std::size_t n_blocks);

  std::size_t n_parts_, rows_a_block_, fewest_kv_heads_;
  std::vector<const RowContext*> rows_;
  std::vector<std::size_t> order_;
  std::vector<Range> chains_;
  std::vector<Block> blocks_;
  std::unordered_map<std::size_t, std::size_t> row_at_;  // the row that wrote a place of the cache
};

}  // namespace outrider

// How attention takes the rows of a pass, and how its work is divided among threads.
//
// Rows of one sequence are taken in blocks, so that a page of committed keys is read once for all
// queries of a block. A page is a tile: the unit of work is one tile for one block and one kv head.
//
// The rows' own keys lie in scratch. There rows are split into chains: runs of rows in which each
// row is the parent of the next, as all rows of a prompt are. The rows of a chain have one path, of
// which earlier rows see a shorter part.

#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/threads.h"
#include "cache/cache.h"
#include "model/spec.h"

namespace outrider {

inline constexpr int kTilePositions = kPagePositions;
inline int tile_of(int position) {
  return position / kTilePositions;
}

// What one row may see: the committed positions [0, committed) of its sequence, then its path in
// scratch, which ends with the row itself. Where a layer's rows see their whole block
// (Attention::sees_block), the path of the block's last row instead, which is the same chain.
struct RowContext {
  int position = 0;
  int committed = 0;
  std::span<const int> pages;
  std::vector<CacheRun> path;
  const RowContext* block_end = nullptr;  // that row; null: this one
  // The position whose window the row has; nothing: its own (BlockInput::windows_end_at_anchor).
  std::optional<int> window_of = {};

  const RowContext& last_seen(const Attention& attention) const {
    return attention.sees_block && block_end ? *block_end : *this;
  }
  int first_seen(const Attention& attention) const {
    return first_visible(attention, window_of.value_or(position));
  }
};

class AttentionPlan {
 public:
  // Tiles are divided among n_threads.
  AttentionPlan(const ModelSpec& spec, int n_threads);

  // Plans a pass over these rows, which must outlive it. Allocates; all else here does not.
  void begin_pass(std::vector<const RowContext*> rows);

  // Attention takes rows in an order of its own: by sequence, and within a sequence by chain. A
  // place is an index into that order. row(): the index in the pass of the row at this place.
  std::size_t row(std::size_t place) const { return order_[place]; }
  const RowContext& context(std::size_t place) const { return *rows_[order_[place]]; }
  // [chains]: the places of its rows.
  std::span<const Range> chains() const { return chains_; }

  // Rows of one sequence at neighbouring places.
  struct Block {
    Range rows;              // places
    Range chains;            // of chains(): those that have a row in the block
    int first_window = 0;    // the first position whose window a row has
    int last_position = 0;   // of a row
    int last_seen = 0;       // that a row sees in a layer where rows see their block
    std::size_t n_runs = 0;  // in the paths of its chains, all together

    int end_of(const Attention& attention) const {
      return (attention.sees_block ? last_seen : last_position) + 1;
    }
  };
  std::span<const Block> blocks() const { return blocks_; }

  // The tiles that a block sees, for one kv head. A tile costs as many units as the block has rows.
  struct Item {
    const Block* block;
    int kv_head;
    int first_tile, end_tile;
    std::size_t first_cost;  // of all items before this one

    std::size_t tile_cost() const { return block->rows.end - block->rows.begin; }
    std::size_t cost() const { return (end_tile - first_tile) * tile_cost(); }
  };
  // The items of a layer. Layers that need the same tiles and the same working memory share them.
  struct Work {
    int first_layer;  // of these layers
    Attention attention;
    std::vector<Item> items;
    std::size_t cost = 0;  // of all items
  };
  const Work& work(int layer) const { return works_[work_of_[layer]]; }
  std::span<const Work> works() const { return works_; }

  // The tiles of an item that a thread takes: those that begin within the thread's share of the
  // cost.
  Range share_of(const Work& work, const Item& item, std::size_t thread) const;
  // The most tiles of the item that one thread takes.
  std::size_t most_tiles(const Work& work, const Item& item) const;

 private:
  // The places of one sequence's rows, and its first chain.
  struct Sequence {
    Range rows;
    std::size_t first_chain;
  };
  std::vector<Sequence> order_rows();
  // Rows are cut into as few blocks as the registers and caches are good for, times `cuts`.
  std::size_t n_blocks(const Sequence& sequence, std::size_t cuts) const;
  // With short contexts there may be too few tiles to divide evenly; more cuts make more of them.
  std::size_t cuts_for(std::span<const Sequence> sequences) const;
  void cut_into_blocks(const Sequence& sequence, std::size_t n_blocks);
  void list_items(Work& work) const;

  std::size_t n_threads_, block_rows_max_, kv_heads_min_;
  std::vector<Work> works_;
  std::vector<std::size_t> work_of_;  // [n_layers], of works_; any where a layer has no attention
  std::vector<const RowContext*> rows_;
  std::vector<std::size_t> order_;
  std::vector<Range> chains_;
  std::vector<Block> blocks_;
  std::unordered_map<std::size_t, std::size_t> row_at_;  // the row that wrote a place of the cache
};

}  // namespace outrider

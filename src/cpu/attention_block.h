// Attention of one block of rows (cpu/attention_plan.h) for one kv head, tile by tile.

#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cpu/attention_formats.h"
#include "cpu/attention_plan.h"

namespace outrider {

inline std::size_t state_floats(std::size_t queries, std::size_t head_dim) {
  return 2 * rounded_up(queries, 16) + queries * rounded_up(head_dim, 16);
}

inline AttentionSums sums_at(float* memory, std::size_t queries, std::size_t head_dim) {
  const std::size_t padded = rounded_up(queries, 16);
  return {
      memory, memory + padded, {memory + 2 * padded, queries, head_dim, rounded_up(head_dim, 16)}};
}

inline void forget_keys(const AttentionSums& sums) {
  std::fill_n(sums.max, sums.size(), AttentionSums::kNoMax);
  std::fill_n(sums.sum, sums.size(), 0.0f);
  std::fill_n(sums.out[0].data(), sums.size() * sums.out.stride(), 0.0f);
}

// Where a tile or a neighbouring group of tiles goes: it is merged into `sums`, or, if that is
// fresh, becomes what it holds.
struct MergeInto {
  AttentionSums sums;
  bool is_fresh;
};

inline void merge(const AttentionKernels& kernels, const AttentionSums& later,
                  const MergeInto& into) {
  if (!into.is_fresh) return kernels.merge(later, into.sums);
  std::copy_n(later.max, later.size(), into.sums.max);
  std::copy_n(later.sum, later.size(), into.sums.sum);
  std::copy_n(later.out[0].data(), later.size() * later.out.stride(), into.sums.out[0].data());
}

// Merges states of tiles, or of neighbouring tiles of a span, in their order: within a span first,
// then spans with each other.
class Merging {
 public:
  Merging(const AttentionKernels& kernels, const AttentionSums& span, const AttentionSums& total)
      : kernels_(kernels), span_(span), total_(total) {}

  // Where what comes next, of `span`, goes.
  MergeInto at(int span) {
    if (open_ == span) return {span_, false};
    if (open_) close();
    open_ = span;
    return {span_, true};
  }

  // After at least one tile.
  const AttentionSums& finish() {
    close();
    return total_;
  }

 private:
  void close() {
    if (has_total_) {
      kernels_.merge(span_, total_);
    } else {
      std::swap(span_, total_);
      has_total_ = true;
    }
  }

  const AttentionKernels& kernels_;
  AttentionSums span_, total_;
  bool has_total_ = false;
  std::optional<int> open_;
};

// Some tiles of one block for one kv head. Query `i` is head i % group of row i / group.
template <typename Format>
class BlockAttention {
 public:
  BlockAttention(const Kernels& kernels, CacheMemory& cache, const AttentionPlan& plan,
                 const Attention& attention, int layer, int kv_head,
                 const AttentionPlan::Block& block, MatrixView<const float> queries,
                 HugeBuffer& memory)
      : kernels_(kernels.attention),
        plan_(plan),
        attention_(attention),
        block_(block),
        group_(attention.n_heads / attention.n_kv_heads),
        n_((block.rows.end - block.rows.begin) * group_),
        committed_(row(0).committed),
        pages_(row(0).pages),
        first_path_tile_(tile_of(committed_)) {
    const std::size_t head_dim = attention.head_dim;
    const std::size_t path_columns =
        (tile_of(block.last_position) + 1 - first_path_tile_) * kTilePositions;
    const std::size_t bytes =
        n_ * ((rounded_up(head_dim, 16) + path_columns + 2 * kTile + 2) * sizeof(float) + 64) +
        3 * state_floats(n_, head_dim) * sizeof(float) + Format::bytes(n_, head_dim) + 1024;
    if (memory.size() < bytes) memory = HugeBuffer(bytes);
    Pieces pieces(memory);
    const auto gathered = pieces.take<float>(n_, head_dim);
    for (std::size_t i = 0; i < n_; ++i) {
      const std::size_t of_row = row_of_query(i);
      const std::size_t head = kv_head * group_ + i % group_;
      std::copy_n(&queries[of_row][head * head_dim], head_dim, gathered[i].data());
    }
    format_.emplace(kernels, cache, layer, kv_head, gathered, pieces);
    p_ = pieces.take<float>(n_, kTile);
    page_scores_ = pieces.take<float>(n_, kTile);
    path_scores_ = pieces.take<float>(n_, path_columns);
    for (AttentionSums* sums : {&tile_, &span_, &total_})
      *sums = sums_at(pieces.take<float>(state_floats(n_, head_dim)), n_, head_dim);
    merge_ = {pieces.take<float>(n_), pieces.take<float>(n_)};
    present_.resize(n_);
  }

  std::size_t size() const { return n_; }
  Merging merging() const { return {kernels_, span_, total_}; }

  // Merges each tile, ascending, into what state_for(tile) says.
  template <typename StateFor>
  void run(Range tiles, StateFor state_for) {
    first_ = attention_.window ? std::max(0, block_.first_position - *attention_.window + 1) : 0;
    if (static_cast<int>(tiles.end) > first_path_tile_) score_path(tiles);
    for (int tile = tiles.begin; tile < static_cast<int>(tiles.end); ++tile) {
      add(tile, tile + 1 < static_cast<int>(tiles.end), state_for(tile));
    }
  }

  void write(const AttentionSums& sums, int kv_head, MatrixView<float> out) const {
    const std::size_t head_dim = attention_.head_dim;
    for (std::size_t i = 0; i < n_; ++i) {
      const std::size_t of_row = row_of_query(i);
      const std::size_t head = kv_head * group_ + i % group_;
      kernels_.divide(sums, i, out[of_row].subspan(head * head_dim, head_dim));
    }
  }

 private:
  const RowContext& row(std::size_t i) const { return plan_.context(block_.rows.begin + i); }
  std::size_t row_of_query(std::size_t i) const {
    return plan_.row(block_.rows.begin + i / group_);
  }

  // body(queries, path) for each chain of the block, as far as it lies in it.
  template <typename Body>
  void for_each_chain(Body body) const {
    for (std::size_t c = block_.chains.begin; c < block_.chains.end; ++c) {
      const std::size_t begin = std::max(plan_.chains()[c].begin, block_.rows.begin);
      const std::size_t end = std::min(plan_.chains()[c].end, block_.rows.end);
      body(Range{(begin - block_.rows.begin) * group_, (end - block_.rows.begin) * group_},
           std::span<const CacheRun>(row(end - 1 - block_.rows.begin).path));
    }
  }

  // The part of a run at positions [from, to); count <= 0 if there is none.
  static CacheRun cut(CacheRun run, int from, int to) {
    const int skip = std::max(0, from - run.position);
    run.offset += skip;
    run.position += skip;
    run.count = std::min(run.count - skip, to - run.position);
    return run;
  }

  // Scores of the first tile with keys in scratch and of all later ones, to their positions. Keys
  // in scratch do not lie at the places of their positions: all queries meet a page as it is, and
  // each takes what is on its path.
  void score_path(Range tiles) {
    const int base = first_path_tile_ * kTilePositions;
    const int from = std::max<int>(first_, tiles.begin * kTilePositions);
    const int to = tiles.end * kTilePositions;
    if (from < committed_ && committed_ > base) {
      format_->scores(pages_[first_path_tile_], places(from - base, committed_ - base), {},
                      columns_of(path_scores_, 0, kTile));
    }
    scratch_pages_.clear();
    for_each_chain([&](Range, std::span<const CacheRun> path) {
      for (const CacheRun& whole : path) {
        const CacheRun run = cut(whole, from, to);
        if (run.count <= 0) continue;
        const auto known = std::ranges::find(scratch_pages_, run.page, &UsedPage::page);
        const int end = run.offset + run.count;
        if (known == scratch_pages_.end()) {
          scratch_pages_.push_back({run.page, run.offset, end});
        } else {
          known->begin = std::min(known->begin, run.offset);
          known->end = std::max(known->end, end);
        }
      }
    });
    for (const UsedPage& used : scratch_pages_) {
      format_->scores(used.page, places(used.begin, used.end), {}, page_scores_);
      for_each_chain([&](Range queries, std::span<const CacheRun> path) {
        for (const CacheRun& whole : path) {
          const CacheRun run = cut(whole, from, to);
          if (run.page != used.page || run.count <= 0) continue;
          for (std::size_t q = queries.begin; q < queries.end; ++q) {
            std::copy_n(&page_scores_[q][run.offset], run.count,
                        &path_scores_[q][run.position - base]);
          }
        }
      });
    }
  }

  void add(int tile, bool has_next, const MergeInto& into) {
    const int start = tile * kTilePositions;
    const Places committed = places(first_ - start, committed_ - start);
    std::optional<int> next;
    if (has_next && start + kTilePositions < committed_) next = pages_[tile + 1];
    MatrixView<float> p = p_;
    if (tile >= first_path_tile_) {
      p = columns_of(path_scores_, (tile - first_path_tile_) * kTile, kTile);
    } else {
      format_->scores(pages_[tile], committed, next, p);
    }
    for (std::size_t i = 0; i < n_; i += group_) {
      const int position = row(i / group_).position;
      const int first = attention_.window ? position - *attention_.window + 1 : 0;
      std::fill_n(&present_[i], group_, places(first - start, position + 1 - start));
    }
    const TileScores scores{attention_, present_, p};
    if (tile < first_path_tile_) {
      if (into.is_fresh) forget_keys(into.sums);
      format_->softmax(scores, pages_[tile], tile_);
      kernels_.merge_sums(tile_, into.sums, merge_);
      format_->values(p, pages_[tile], committed, next, merge_, into.sums.out);
      return;
    }
    chain_parts_.clear();
    for_each_chain([&](Range queries, std::span<const CacheRun> path) {
      chain_parts_.push_back({queries, {}});
      for (const CacheRun& whole : path) {
        CacheRun run = cut(whole, std::max(start, first_), start + kTilePositions);
        if (run.count <= 0) continue;
        run.position -= start;
        chain_parts_.back().runs.push_back(run);
      }
    });
    const int page = committed.begin < committed.end ? pages_[tile] : 0;
    const AttentionSums& sums = into.is_fresh ? into.sums : tile_;
    format_->softmax(scores, page, committed, chain_parts_, sums);
    format_->values(p, page, committed, chain_parts_, sums.out);
    if (!into.is_fresh) kernels_.merge(sums, into.sums);
  }

  // Places [begin, end), cut to the tile.
  static Places places(int begin, int end) {
    const int from = std::clamp(begin, 0, kTilePositions);
    return {static_cast<std::uint8_t>(from),
            static_cast<std::uint8_t>(std::clamp(end, from, kTilePositions))};
  }

  struct UsedPage {
    int page, begin, end;
  };

  const AttentionKernels& kernels_;
  const AttentionPlan& plan_;
  const Attention& attention_;
  const AttentionPlan::Block& block_;
  const std::size_t group_, n_;
  const int committed_;
  const std::span<const int> pages_;
  const int first_path_tile_;  // the first with positions that are not committed
  int first_ = 0;              // position that any row may see
  std::optional<Format> format_;
  MatrixView<float> p_, page_scores_;  // [n][64]
  MatrixView<float> path_scores_;      // [n][positions from first_path_tile_ on]
  AttentionSums tile_, span_, total_;
  MergeFactors merge_;
  std::vector<Places> present_;
  std::vector<UsedPage> scratch_pages_;
  std::vector<ChainPart> chain_parts_;
};

}  // namespace outrider

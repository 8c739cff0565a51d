// Attention of one block of rows (cpu/attention_plan.h) for one kv head, tile by tile.

#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "cpu/attention_formats.h"
#include "cpu/attention_plan.h"

namespace outrider {

inline AttentionSums take_sums(std::size_t queries, std::size_t value_dim, BumpAllocator& memory) {
  return {memory.take<float>(queries).data(), memory.take<float>(queries).data(),
          memory.take<float>(queries, value_dim)};
}

inline std::size_t sums_bytes(std::size_t queries, std::size_t value_dim) {
  BumpAllocator counter;
  take_sums(queries, value_dim, counter);
  return counter.used_bytes();
}

inline void clear(const AttentionSums& sums) {
  std::fill_n(sums.max, sums.size(), AttentionSums::kNoMax);
  std::fill_n(sums.sum, sums.size(), 0.0f);
  std::fill_n(sums.out[0].data(), sums.size() * sums.out.stride(), 0.0f);
}

// Where the AttentionSums of a tile, or of neighbouring tiles, go: they are merged into `sums`, or
// put there if `sums` is fresh, so holds nothing yet.
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

// Merges AttentionSums in the order of their tiles: those of one span with each other first, then
// spans.
class Merging {
 public:
  Merging(const AttentionKernels& kernels, const AttentionSums& span, const AttentionSums& total)
      : kernels_(kernels), span_(span), total_(total) {}

  // Where the next sums go, which are of tiles of `span`.
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

// Working memory for one block and one kv head. n: the block's queries.
template <typename Format>
struct BlockMemory {
  struct UsedPage {
    int page, begin, end;
  };

  // committed: positions of the block's sequence.
  BlockMemory(const AttentionPlan::Block& block, int committed, const Attention& attention,
              BumpAllocator& memory)
      : BlockMemory(
            (block.rows.end - block.rows.begin) * attention.n_heads / attention.n_kv_heads,
            (tile_of(block.end_of(attention) - 1) + 1 - tile_of(committed)) * kTilePositions, block,
            attention, memory) {}

  MatrixView<float> queries;  // [n][key_dim]
  typename Format::Memory format;
  MatrixView<float> p, page_scores;  // [n][64]
  MatrixView<float> path_scores;     // [n][positions from the first tile with scratch on]
  AttentionSums tile, span, total;
  MergeFactors merge;
  std::span<Places> present;    // [n]
  std::span<UsedPage> pages;    // [runs]
  std::span<ChainPart> chains;  // [chains]
  std::span<CacheRun> runs;     // [runs]

 private:
  BlockMemory(std::size_t n, std::size_t path_columns, const AttentionPlan::Block& block,
              const Attention& attention, BumpAllocator& memory)
      : queries(memory.take<float>(n, attention.key_dim)),
        format(n, attention, memory),
        p(memory.take<float>(n, kTile)),
        page_scores(memory.take<float>(n, kTile)),
        path_scores(memory.take<float>(n, path_columns)),
        merge{memory.take<float>(n).data(), memory.take<float>(n).data()},
        present(memory.take<Places>(n)),
        pages(memory.take<UsedPage>(block.n_runs)),
        chains(memory.take<ChainPart>(block.chains.end - block.chains.begin)),
        runs(memory.take<CacheRun>(block.n_runs)) {
    for (AttentionSums* sums : {&tile, &span, &total})
      *sums = take_sums(n, attention.value_dim, memory);
  }
};

// Some tiles of one block for one kv head. Query i is head i % group of row i / group.
template <typename Format>
class BlockAttention {
 public:
  BlockAttention(const Kernels& kernels, CacheMemory& cache, const AttentionPlan& plan,
                 const Attention& attention, int layer, int kv_head,
                 const AttentionPlan::Block& block, MatrixView<const float> queries,
                 BumpAllocator memory)
      : kernels_(kernels.attention),
        plan_(plan),
        attention_(attention),
        block_(block),
        group_(attention.n_heads / attention.n_kv_heads),
        n_((block.rows.end - block.rows.begin) * group_),
        committed_(row(0).committed),
        pages_(row(0).pages),
        first_path_tile_(tile_of(committed_)),
        memory_(block, committed_, attention, memory) {
    const std::size_t key_dim = attention.key_dim;
    for (std::size_t i = 0; i < n_; ++i) {
      const std::size_t of_row = row_of_query(i);
      const std::size_t head = kv_head * group_ + i % group_;
      std::copy_n(&queries[of_row][head * key_dim], key_dim, memory_.queries[i].data());
    }
    format_.emplace(kernels, cache, layer, kv_head, memory_.queries, memory_.format);
  }

  std::size_t size() const { return n_; }
  Merging merging() const { return {kernels_, memory_.span, memory_.total}; }

  // Merges each tile, ascending, into what state_for(tile) says.
  template <typename StateFor>
  void run(Range tiles, StateFor state_for) {
    first_ = first_visible(attention_, block_.first_window);
    if (static_cast<int>(tiles.end) > first_path_tile_) score_path(tiles);
    for (int tile = tiles.begin; tile < static_cast<int>(tiles.end); ++tile) {
      add(tile, tile + 1 < static_cast<int>(tiles.end), state_for(tile));
    }
  }

  void write(const AttentionSums& sums, int kv_head, MatrixView<float> out) const {
    const std::size_t value_dim = attention_.value_dim;
    for (std::size_t i = 0; i < n_; ++i) {
      const std::size_t of_row = row_of_query(i);
      const std::size_t head = kv_head * group_ + i % group_;
      kernels_.divide(sums, i, out[of_row].subspan(head * value_dim, value_dim));
    }
  }

 private:
  const RowContext& row(std::size_t i) const { return plan_.context(block_.rows.begin + i); }
  std::size_t row_of_query(std::size_t i) const {
    return plan_.row(block_.rows.begin + i / group_);
  }

  // body(queries, path) for the part of each chain that lies in the block.
  template <typename Body>
  void for_each_chain(Body body) const {
    for (std::size_t c = block_.chains.begin; c < block_.chains.end; ++c) {
      const std::size_t begin = std::max(plan_.chains()[c].begin, block_.rows.begin);
      const std::size_t end = std::min(plan_.chains()[c].end, block_.rows.end);
      body(Range{(begin - block_.rows.begin) * group_, (end - block_.rows.begin) * group_},
           std::span<const CacheRun>(row(end - 1 - block_.rows.begin).last_seen(attention_).path));
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

  // Scores of all tiles with keys in scratch, by position. A key's place in a scratch page has
  // nothing to do with its position: so all queries are scored against the whole page, and each
  // copies the scores of the keys on its path to their positions.
  void score_path(Range tiles) {
    const int base = first_path_tile_ * kTilePositions;
    const int from = std::max<int>(first_, tiles.begin * kTilePositions);
    const int to = tiles.end * kTilePositions;
    if (from < committed_ && committed_ > base) {
      format_->scores(pages_[first_path_tile_], places(from - base, committed_ - base), {},
                      columns_of(memory_.path_scores, 0, kTile));
    }
    std::size_t n_pages = 0;
    for_each_chain([&](Range, std::span<const CacheRun> path) {
      for (const CacheRun& whole : path) {
        const CacheRun run = cut(whole, from, to);
        if (run.count <= 0) continue;
        const auto pages = memory_.pages.first(n_pages);
        const auto known = std::ranges::find(pages, run.page, &UsedPage::page);
        const int end = run.offset + run.count;
        if (known == pages.end()) {
          memory_.pages[n_pages++] = {run.page, run.offset, end};
        } else {
          known->begin = std::min(known->begin, run.offset);
          known->end = std::max(known->end, end);
        }
      }
    });
    for (const UsedPage& used : memory_.pages.first(n_pages)) {
      format_->scores(used.page, places(used.begin, used.end), {}, memory_.page_scores);
      for_each_chain([&](Range queries, std::span<const CacheRun> path) {
        for (const CacheRun& whole : path) {
          const CacheRun run = cut(whole, from, to);
          if (run.page != used.page || run.count <= 0) continue;
          for (std::size_t q = queries.begin; q < queries.end; ++q) {
            std::copy_n(&memory_.page_scores[q][run.offset], run.count,
                        &memory_.path_scores[q][run.position - base]);
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
    MatrixView<float> p = memory_.p;
    if (tile >= first_path_tile_) {
      p = columns_of(memory_.path_scores, (tile - first_path_tile_) * kTile, kTile);
    } else {
      format_->scores(pages_[tile], committed, next, p);
    }
    for (std::size_t i = 0; i < n_; i += group_) {
      const RowContext& own = row(i / group_);
      const int first = own.first_seen(attention_);
      const int last = own.last_seen(attention_).position;
      std::fill_n(&memory_.present[i], group_, places(first - start, last + 1 - start));
    }
    const TileScores scores{attention_, memory_.present, p};
    if (tile < first_path_tile_) {
      if (into.is_fresh) clear(into.sums);
      format_->softmax(scores, pages_[tile], memory_.tile);
      kernels_.merge_sums(memory_.tile, into.sums, memory_.merge);
      format_->values(p, pages_[tile], committed, next, memory_.merge, into.sums.out);
      return;
    }
    const std::span<const ChainPart> chains = chains_in(tile);
    const int page = committed.begin < committed.end ? pages_[tile] : 0;
    const AttentionSums& sums = into.is_fresh ? into.sums : memory_.tile;
    format_->softmax(scores, page, committed, chains, sums);
    format_->values(p, page, committed, chains, sums.out);
    if (!into.is_fresh) kernels_.merge(sums, into.sums);
  }

  // What each chain of the block sees in scratch of a tile.
  std::span<const ChainPart> chains_in(int tile) {
    const int start = tile * kTilePositions;
    std::size_t n_chains = 0, n_runs = 0;
    for_each_chain([&](Range queries, std::span<const CacheRun> path) {
      const std::size_t first_run = n_runs;
      for (const CacheRun& whole : path) {
        CacheRun run = cut(whole, std::max(start, first_), start + kTilePositions);
        if (run.count <= 0) continue;
        run.position -= start;
        memory_.runs[n_runs++] = run;
      }
      memory_.chains[n_chains++] = {queries, memory_.runs.subspan(first_run, n_runs - first_run)};
    });
    return memory_.chains.first(n_chains);
  }

  // Places [begin, end), cut to the tile.
  static Places places(int begin, int end) {
    const int from = std::clamp(begin, 0, kTilePositions);
    return {static_cast<std::uint8_t>(from),
            static_cast<std::uint8_t>(std::clamp(end, from, kTilePositions))};
  }

  using UsedPage = typename BlockMemory<Format>::UsedPage;

  const AttentionKernels& kernels_;
  const AttentionPlan& plan_;
  const Attention& attention_;
  const AttentionPlan::Block& block_;
  const std::size_t group_, n_;
  const int committed_;
  const std::span<const int> pages_;
  const int first_path_tile_;  // the first with positions that are not committed
  int first_ = 0;              // position that any row may see
  const BlockMemory<Format> memory_;
  std::optional<Format> format_;
};

}  // namespace outrider

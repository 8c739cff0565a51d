#include "cpu/attention_plan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

namespace outrider {
namespace {

// With so many queries in a block, their products hide what a page costs besides: reading it from
// memory and widening its elements.
constexpr std::size_t kBlockQueries = 48;
// The busiest thread may have this many times its even share of the work before rows are cut into
// more blocks. There are at most kCutsMax times as many blocks, as each block reads the keys again.
constexpr double kUnevenMax = 1.15;
constexpr std::size_t kCutsMax = 4;

// Whether both need the same tiles and the same working memory.
bool same_work(const Attention& a, const Attention& b) {
  return a.n_heads == b.n_heads && a.n_kv_heads == b.n_kv_heads && a.key_dim == b.key_dim &&
         a.value_dim == b.value_dim && a.window == b.window && a.first_key == b.first_key &&
         a.sees_block == b.sees_block;
}

}  // namespace

AttentionPlan::AttentionPlan(const ModelSpec& spec, int n_threads)
    : n_threads_(n_threads), kv_heads_min_(std::numeric_limits<std::size_t>::max()) {
  std::size_t group = 1;
  for (int layer = 0; layer < spec.n_layers(); ++layer) {
    work_of_.push_back(0);
    const Attention* attention = attention_of(spec.layers[layer]);
    if (attention == nullptr) continue;
    group = std::max<std::size_t>(group, attention->n_heads / attention->n_kv_heads);
    kv_heads_min_ = std::min<std::size_t>(kv_heads_min_, attention->n_kv_heads);
    const auto same = std::ranges::find_if(
        works_, [&](const Work& work) { return same_work(work.attention, *attention); });
    work_of_.back() = same - works_.begin();
    if (same == works_.end()) works_.push_back({layer, *attention, {}});
  }
  block_rows_max_ = std::max<std::size_t>(1, kBlockQueries / group);
}

void AttentionPlan::begin_pass(std::vector<const RowContext*> rows) {
  rows_ = std::move(rows);
  order_.clear();
  chains_.clear();
  blocks_.clear();
  const std::vector<Sequence> sequences = order_rows();
  const std::size_t cuts = cuts_for(sequences);
  for (const Sequence& sequence : sequences) cut_into_blocks(sequence, n_blocks(sequence, cuts));
  for (Work& work : works_) list_items(work);
}

std::vector<AttentionPlan::Sequence> AttentionPlan::order_rows() {
  row_at_.clear();
  // A row continues the chain of its parent, unless another child of the parent already does.
  constexpr std::size_t kNone = -1;
  std::vector<std::size_t> child(rows_.size(), kNone);
  std::vector<std::size_t> firsts;  // the first row of each chain
  const auto place = [](const CacheRun& run, int at) {
    return static_cast<std::size_t>(run.page) * kPagePositions + run.offset + at;
  };
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    const std::vector<CacheRun>& path = rows_[i]->path;
    std::optional<std::size_t> parent;
    if (path.back().count > 1) {
      parent = place(path.back(), path.back().count - 2);
    } else if (path.size() > 1) {
      const CacheRun& before = path[path.size() - 2];
      parent = place(before, before.count - 1);
    }
    const auto found = parent ? row_at_.find(*parent) : row_at_.end();
    if (found != row_at_.end() && child[found->second] == kNone) {
      child[found->second] = i;
    } else {
      firsts.push_back(i);
    }
    row_at_[place(path.back(), path.back().count - 1)] = i;
  }
  // No two sequences share a list of pages. Those that have no pages may be taken as one sequence.
  const auto same_sequence = [&](std::size_t a, std::size_t b) {
    return rows_[a]->pages.data() == rows_[b]->pages.data() &&
           rows_[a]->committed == rows_[b]->committed;
  };
  std::vector<Sequence> sequences;
  std::vector<std::size_t> left = std::move(firsts);
  while (!left.empty()) {
    const std::size_t begin = order_.size(), first_chain = chains_.size();
    const auto others = std::stable_partition(
        left.begin(), left.end(), [&, first = left[0]](auto i) { return same_sequence(i, first); });
    for (auto first = left.begin(); first != others; ++first) {
      const std::size_t chain = order_.size();
      for (std::size_t i = *first; i != kNone; i = child[i]) order_.push_back(i);
      chains_.push_back({chain, order_.size()});
    }
    left.erase(left.begin(), others);
    sequences.push_back({{begin, order_.size()}, first_chain});
  }
  return sequences;
}

std::size_t AttentionPlan::n_blocks(const Sequence& sequence, std::size_t cuts) const {
  const std::size_t n = sequence.rows.end - sequence.rows.begin;
  return std::min(n, (n + block_rows_max_ - 1) / block_rows_max_ * cuts);
}

std::size_t AttentionPlan::cuts_for(std::span<const Sequence> sequences) const {
  for (std::size_t cuts = 1; cuts < kCutsMax; ++cuts) {
    std::size_t tiles = 0;  // of the layer with the fewest kv heads, windows left aside
    for (const Sequence& sequence : sequences) {
      tiles += n_blocks(sequence, cuts) * kv_heads_min_ *
               (tile_of(context(sequence.rows.begin).committed) + 1);
    }
    const std::size_t most = (tiles + n_threads_ - 1) / n_threads_;
    if (most * n_threads_ <= tiles * kUnevenMax) return cuts;
  }
  return kCutsMax;
}

void AttentionPlan::cut_into_blocks(const Sequence& sequence, std::size_t n_blocks) {
  const std::size_t n = sequence.rows.end - sequence.rows.begin;
  std::size_t chain = sequence.first_chain;
  for (std::size_t i = 0; i < n_blocks; ++i) {
    const Range part = share(n, i, n_blocks);
    Block block{{sequence.rows.begin + part.begin, sequence.rows.begin + part.end}, {}};
    while (chains_[chain].end <= block.rows.begin) ++chain;
    block.chains = {chain, chain};
    while (block.chains.end < chains_.size() && chains_[block.chains.end].begin < block.rows.end) {
      const std::size_t last_row = std::min(chains_[block.chains.end].end, block.rows.end) - 1;
      const RowContext& last = context(last_row);
      block.n_runs += (last.block_end ? *last.block_end : last).path.size();
      ++block.chains.end;
    }
    block.first_window = context(block.rows.begin).position;
    for (std::size_t r = block.rows.begin; r < block.rows.end; ++r) {
      const RowContext& row = context(r);
      block.first_window = std::min(block.first_window, row.window_of.value_or(row.position));
      block.last_position = std::max(block.last_position, row.position);
      block.last_seen = std::max(block.last_seen, (row.block_end ? *row.block_end : row).position);
    }
    blocks_.push_back(block);
  }
}

void AttentionPlan::list_items(Work& work) const {
  work.items.clear();
  work.cost = 0;
  for (int kv_head = 0; kv_head < work.attention.n_kv_heads; ++kv_head) {
    for (const Block& block : blocks_) {
      const int first = first_visible(work.attention, block.first_window);
      work.items.push_back({&block, kv_head, tile_of(first),
                            tile_of(block.end_of(work.attention) - 1) + 1, work.cost});
      work.cost += work.items.back().cost();
    }
  }
}

Range AttentionPlan::share_of(const Work& work, const Item& item, std::size_t thread) const {
  // The first tile that begins at the begin of thread i's share of the cost, or after it.
  const auto first_tile = [&](std::size_t i) -> std::size_t {
    const std::size_t cost = work.cost * i / n_threads_;
    if (cost <= item.first_cost) return item.first_tile;
    const std::size_t tiles = (cost - item.first_cost + item.tile_cost() - 1) / item.tile_cost();
    return std::min<std::size_t>(item.first_tile + tiles, item.end_tile);
  };
  return {first_tile(thread), first_tile(thread + 1)};
}

std::size_t AttentionPlan::most_tiles(const Work& work, const Item& item) const {
  const std::size_t share_cost = work.cost / n_threads_ + 1;
  return std::min<std::size_t>(item.end_tile - item.first_tile, share_cost / item.tile_cost() + 1);
}

}  // namespace outrider

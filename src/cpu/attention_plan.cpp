#include "cpu/attention_plan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <variant>

namespace outrider {
namespace {

// Enough to hide what a page costs besides products: reading it from memory, its widening.
constexpr std::size_t kBlockQueries = 48;
// What the busiest part may have to do, an even division being 1, before rows are cut into more
// blocks, and into how many times as many at most: each block reads the keys again.
constexpr double kUneven = 1.15;
constexpr std::size_t kMostCuts = 4;

}  // namespace

AttentionPlan::AttentionPlan(const ModelSpec& spec, int n_parts) : n_parts_(n_parts) {
  std::size_t group = 1;
  fewest_kv_heads_ = std::numeric_limits<std::size_t>::max();
  for (const LayerSpec& layer : spec.layers) {
    for (const Operation& operation : layer.operations) {
      const auto* attention = std::get_if<Attention>(&operation.body);
      if (attention == nullptr) continue;
      group = std::max<std::size_t>(group, attention->n_heads / attention->n_kv_heads);
      fewest_kv_heads_ = std::min<std::size_t>(fewest_kv_heads_, attention->n_kv_heads);
    }
  }
  rows_a_block_ = std::max<std::size_t>(1, kBlockQueries / group);
}

void AttentionPlan::begin_pass(std::vector<const RowContext*> rows) {
  rows_ = std::move(rows);
  order_.clear();
  chains_.clear();
  blocks_.clear();
  const std::vector<Sequence> sequences = order_rows();
  const std::size_t cuts = cuts_for(sequences);
  for (const Sequence& sequence : sequences) cut_into_blocks(sequence, n_blocks(sequence, cuts));
}

std::vector<AttentionPlan::Sequence> AttentionPlan::order_rows() {
  row_at_.clear();
  // A row continues the chain of its parent, unless another child was there before it.
  constexpr std::size_t kNone = -1;
  std::vector<std::size_t> child(rows_.size(), kNone);
  std::vector<std::size_t> firsts;  // rows that begin a chain
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
  // Sequences share no list of pages; two without any are as good as one.
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
  return std::min(n, (n + rows_a_block_ - 1) / rows_a_block_ * cuts);
}

std::size_t AttentionPlan::cuts_for(std::span<const Sequence> sequences) const {
  for (std::size_t cuts = 1; cuts < kMostCuts; ++cuts) {
    std::size_t tiles = 0;  // as many as a layer without a window has at least
    for (const Sequence& sequence : sequences) {
      tiles += n_blocks(sequence, cuts) * fewest_kv_heads_ *
               (tile_of(context(sequence.rows.begin).committed) + 1);
    }
    const std::size_t most = (tiles + n_parts_ - 1) / n_parts_;
    if (most * n_parts_ <= tiles * kUneven) return cuts;
  }
  return kMostCuts;
}

void AttentionPlan::cut_into_blocks(const Sequence& sequence, std::size_t n_blocks) {
  const std::size_t n = sequence.rows.end - sequence.rows.begin;
  std::size_t chain = sequence.first_chain;
  for (std::size_t i = 0; i < n_blocks; ++i) {
    const Range part = share(n, i, n_blocks);
    Block block{{sequence.rows.begin + part.begin, sequence.rows.begin + part.end}, {}};
    while (chains_[chain].end <= block.rows.begin) ++chain;
    block.chains = {chain, chain};
    while (block.chains.end < chains_.size() && chains_[block.chains.end].begin < block.rows.end)
      ++block.chains.end;
    block.first_position = context(block.rows.begin).position;
    for (std::size_t r = block.rows.begin; r < block.rows.end; ++r) {
      const int position = context(r).position;
      block.first_position = std::min(block.first_position, position);
      block.last_position = std::max(block.last_position, position);
    }
    blocks_.push_back(block);
  }
}

void AttentionPlan::list_items(const Attention& attention, std::vector<Item>& items) const {
  items.clear();
  std::size_t cost = 0;
  for (int kv_head = 0; kv_head < attention.n_kv_heads; ++kv_head) {
    for (const Block& block : blocks_) {
      const int first =
          attention.window ? std::max(0, block.first_position - *attention.window + 1) : 0;
      items.push_back({&block, kv_head, tile_of(first), tile_of(block.last_position) + 1, cost});
      cost += items.back().cost();
    }
  }
}

Range AttentionPlan::share_of(const Item& item, std::size_t total_cost, std::size_t part) const {
  // A tile is the part's in whose share of the cost it begins.
  const auto first_at = [&](std::size_t at) -> std::size_t {
    const std::size_t cost = total_cost * at / n_parts_;
    if (cost <= item.first_cost) return item.first_tile;
    const std::size_t tiles = (cost - item.first_cost + item.tile_cost() - 1) / item.tile_cost();
    return std::min<std::size_t>(item.first_tile + tiles, item.end_tile);
  };
  return {first_at(part), first_at(part + 1)};
}

}  // namespace outrider

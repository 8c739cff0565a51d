#include "cpu/attention.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "numerics/attention.h"

namespace outrider {
namespace {

constexpr int kTilePositions = kPagePositions;
// Enough to hide what a page costs besides products: reading it from memory, its widening.
constexpr std::size_t kBlockQueries = 48;

std::size_t rounded_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

int tile_of(int position) {
  return position / kTilePositions;
}

// Hands out pieces of a buffer, each on a line of the cache.
class Pieces {
 public:
  explicit Pieces(HugeBuffer& memory) : memory_(memory) {}

  template <typename T>
  T* take(std::size_t count) {
    T* piece = reinterpret_cast<T*>(memory_.begin() + used_);
    used_ += rounded_up(count * sizeof(T), 64);
    CHECK(used_ <= memory_.size());
    return piece;
  }
  template <typename T>
  MatrixView<T> take(std::size_t rows, std::size_t columns) {
    const std::size_t stride = rounded_up(columns, 64 / sizeof(T));
    return {take<T>(rows * stride), rows, columns, stride};
  }

 private:
  HugeBuffer& memory_;
  std::size_t used_ = 0;
};

template <typename T>
MatrixView<T> rows_of(MatrixView<T> view, Range rows) {
  return {view[rows.begin].data(), rows.end - rows.begin, view.columns(), view.stride()};
}

template <typename T>
MatrixView<T> columns_of(MatrixView<T> view, std::size_t first, std::size_t count) {
  return {view[0].data() + first, view.rows(), count, view.stride()};
}

std::size_t state_floats(std::size_t queries, std::size_t head_dim) {
  return 2 * rounded_up(queries, 16) + queries * rounded_up(head_dim, 16);
}

AttentionSums sums_at(float* memory, std::size_t queries, std::size_t head_dim) {
  const std::size_t padded = rounded_up(queries, 16);
  return {
      memory, memory + padded, {memory + 2 * padded, queries, head_dim, rounded_up(head_dim, 16)}};
}

void forget_keys(const AttentionSums& sums) {
  std::fill_n(sums.max, sums.size(), AttentionSums::kNoMax);
  std::fill_n(sums.sum, sums.size(), 0.0f);
  std::fill_n(sums.out[0].data(), sums.size() * sums.out.stride(), 0.0f);
}

// Merges states of tiles, or of neighbouring tiles of a span, in their order: within a span first,
// then spans with each other.
class Merging {
 public:
  Merging(const AttentionKernels& kernels, const AttentionSums& span, const AttentionSums& total)
      : kernels_(kernels), span_(span), total_(total) {
    forget_keys(span_);
    forget_keys(total_);
  }

  // The state with which what comes of `span` is to be merged next.
  const AttentionSums& at(int span) {
    if (open_ && *open_ != span) close();
    open_ = span;
    return span_;
  }

  const AttentionSums& finish() {
    close();
    return total_;
  }

 private:
  void close() {
    kernels_.merge(span_, total_);
    forget_keys(span_);
  }

  const AttentionKernels& kernels_;
  AttentionSums span_, total_;
  std::optional<int> open_;
};

// What the rows of a chain, queries [begin, end) of the block, see of a tile in scratch; a run's
// position is its place in the tile.
struct ChainPart {
  Range queries;
  std::vector<CacheRun> runs;
};

CacheRun place_of(int page, Places places) {
  return {page, places.begin, places.begin, places.end - places.begin};
}

// Rows of a tile's scores in which each query sees some places.
struct TileScores {
  const Attention& attention;
  std::span<const Places> present;
  MatrixView<float> p;

  TileScores part(Range queries) const {
    return {attention, present.subspan(queries.begin, queries.end - queries.begin),
            rows_of(p, queries)};
  }
  float scale() const { return static_cast<float>(attention.scale); }
  std::optional<float> softcap() const {
    return attention.softcap ? std::optional(static_cast<float>(*attention.softcap)) : std::nullopt;
  }
};

// Keys and values as halves or floats.
template <typename T>
class FloatFormat {
 public:
  FloatFormat(const Kernels& kernels, CacheMemory& memory, int layer, int kv_head,
              MatrixView<const float> queries, Pieces&)
      : kernels_(kernels.attention),
        memory_(memory),
        layer_(layer),
        kv_head_(kv_head),
        queries_(queries) {}

  static std::size_t bytes(std::size_t, std::size_t) { return 0; }

  void scores(int page, Places places, std::optional<int> next, MatrixView<float> p) {
    const T* ahead = next ? memory_.keys<T>(*next, layer_, kv_head_) : nullptr;
    const T* keys = memory_.keys<T>(page, layer_, kv_head_);
    if constexpr (std::is_same_v<T, Half>) {
      kernels_.scores_f16(queries_, keys, places, ahead, p);
    } else {
      kernels_.scores_f32(queries_, keys, places, ahead, p);
    }
  }

  // Of keys that all lie in a page of history: scores to weights; their values, merged with out.
  void softmax(const TileScores& scores, int, const AttentionSums& sums) { softmax(scores, sums); }
  void values(MatrixView<const float> p, int page, Places committed, std::optional<int> next,
              const MergeFactors& merge, MatrixView<float> out) {
    const T* ahead = next ? memory_.values<T>(*next, layer_, kv_head_) : nullptr;
    add(p, place_of(page, committed), ahead, &merge, out);
  }

  // Of keys that lie in a page of history and in scratch: scores to weights; their values.
  void softmax(const TileScores& scores, int, Places, std::span<const ChainPart>,
               const AttentionSums& sums) {
    softmax(scores, sums);
  }
  void values(MatrixView<const float> p, int page, Places committed,
              std::span<const ChainPart> chains, MatrixView<float> out) {
    std::fill_n(out[0].data(), out.rows() * out.stride(), 0.0f);
    if (committed.begin < committed.end) add(p, place_of(page, committed), nullptr, nullptr, out);
    for (const ChainPart& chain : chains) {
      for (const CacheRun& run : chain.runs)
        add(rows_of(p, chain.queries), run, nullptr, nullptr, rows_of(out, chain.queries));
    }
  }

 private:
  void softmax(const TileScores& scores, const AttentionSums& sums) {
    kernels_.softmax(scores.scale(), scores.softcap(), scores.present, scores.p, sums);
  }

  void add(MatrixView<const float> p, const CacheRun& run, const T* ahead,
           const MergeFactors* merge, MatrixView<float> out) {
    const T* values = memory_.values<T>(run.page, layer_, kv_head_) + run.offset * out.columns();
    const auto weights = columns_of(p, run.position, run.count);
    if constexpr (std::is_same_v<T, Half>) {
      kernels_.values_f16(weights, values, run.count, ahead, merge, out);
    } else {
      kernels_.values_f32(weights, values, run.count, ahead, merge, out);
    }
  }

  const AttentionKernels& kernels_;
  CacheMemory& memory_;
  const int layer_, kv_head_;
  const MatrixView<const float> queries_;
};

// Keys and values in 8 bits. Weights become integers with all of a query's keys in sight; a run in
// scratch may stand at other places of its page than of the tile.
class Q8Format {
 public:
  Q8Format(const Kernels& kernels, CacheMemory& memory, int layer, int kv_head,
           MatrixView<const float> queries, Pieces& pieces)
      : kernels_(kernels.attention), memory_(memory), layer_(layer), kv_head_(kv_head) {
    const std::size_t n = queries.rows(), head_dim = queries.columns();
    const auto q = pieces.take<std::int8_t>(n, head_dim);
    const auto d = pieces.take<float>(n, head_dim / kKeyGroup);
    const auto bias = pieces.take<std::int32_t>(n, head_dim / kKeyGroup);
    std::int16_t sums16[kHeadDimMax / 16];
    for (std::size_t i = 0; i < n; ++i) {
      kernels.products.quantize(queries[i], kKeyGroup, {q[i].data(), d[i].data(), sums16});
      for (std::size_t group = 0; group < head_dim / kKeyGroup; ++group)
        bias[i][group] = -128 * (sums16[2 * group] + sums16[2 * group + 1]);
    }
    queries_ = {q, d, bias};
    weights_ = pieces.take<std::int16_t>(n, kTile);
    run_weights_ = pieces.take<std::int16_t>(n, kTile);
    sums_ = pieces.take<std::int32_t>(n, head_dim);
    factors_ = pieces.take<float>(n);
  }

  static std::size_t bytes(std::size_t n, std::size_t head_dim) {
    return n * (rounded_up(head_dim, 64) + 8 * rounded_up(head_dim / kKeyGroup, 16) +
                2 * kTile * sizeof(std::int16_t) + 4 * rounded_up(head_dim, 16) + sizeof(float)) +
           512;
  }

  void scores(int page, Places places, std::optional<int> next, MatrixView<float> p) {
    const KeysQ8 keys = keys_of(page), ahead = keys_of(next.value_or(page));
    kernels_.scores_q8_0(queries_, keys, places, next ? &ahead : nullptr, p);
  }

  void softmax(const TileScores& scores, int page, const AttentionSums& sums) {
    softmax(scores, head_of(page).value_scales, {0, scores.p.rows()}, sums);
  }
  void values(MatrixView<const float>, int page, Places committed, std::optional<int> next,
              const MergeFactors& merge, MatrixView<float> out) {
    kernels_.values_q8_0_merged(weights_, head_of(page).values, committed,
                                next ? head_of(*next).values : nullptr, factors_, merge, out);
  }

  void softmax(const TileScores& scores, int page, Places committed,
               std::span<const ChainPart> chains, const AttentionSums& sums) {
    for (const ChainPart& chain : chains) {
      Half scales[kTile] = {};
      const auto gather = [&](const CacheRun& run) {
        if (run.count > 0)
          std::copy_n(head_of(run.page).value_scales + run.offset, run.count,
                      scales + run.position);
      };
      gather(place_of(page, committed));
      for (const CacheRun& run : chain.runs) gather(run);
      softmax(scores, scales, chain.queries, sums);
    }
  }
  void values(MatrixView<const float>, int page, Places committed,
              std::span<const ChainPart> chains, MatrixView<float> out) {
    std::fill_n(sums_[0].data(), sums_.rows() * sums_.stride(), 0);
    const CacheRun of_page = place_of(page, committed);
    for (const ChainPart& chain : chains) {
      if (of_page.count > 0) add_run(of_page, chain.queries);
      for (const CacheRun& run : chain.runs) add_run(run, chain.queries);
    }
    kernels_.widen(factors_, sums_, out);
  }

 private:
  CacheMemory::HeadQ8 head_of(int page) { return memory_.head_q8_0(page, layer_, kv_head_); }
  KeysQ8 keys_of(int page) {
    const CacheMemory::HeadQ8 head = head_of(page);
    return {head.keys, head.key_scales};
  }

  void softmax(const TileScores& scores, const Half* value_scales, Range queries,
               const AttentionSums& sums) {
    const TileScores some = scores.part(queries);
    const AttentionSums of_some{sums.max + queries.begin, sums.sum + queries.begin, {}};
    kernels_.softmax_q8_0(some.scale(), some.softcap(), some.present, some.p, value_scales,
                          rows_of(weights_, queries), factors_ + queries.begin, of_some);
  }

  void add_run(const CacheRun& run, Range queries) {
    for (std::size_t q = queries.begin; q < queries.end; ++q) {
      std::fill_n(run_weights_[q].data(), kTile, std::int16_t{0});
      std::copy_n(&weights_[q][run.position], run.count, &run_weights_[q][run.offset]);
    }
    const Places places{static_cast<std::uint8_t>(run.offset),
                        static_cast<std::uint8_t>(run.offset + run.count)};
    kernels_.values_q8_0(rows_of(run_weights_, queries), head_of(run.page).values, places,
                         rows_of(sums_, queries));
  }

  const AttentionKernels& kernels_;
  CacheMemory& memory_;
  const int layer_, kv_head_;
  QuantizedQueries queries_;
  MatrixView<std::int16_t> weights_, run_weights_;  // [n][64], by place of the tile, of a page
  MatrixView<std::int32_t> sums_;                   // [n][head_dim]
  float* factors_;                                  // [n]
};

}  // namespace

// Some tiles of one block for one kv head. Query `i` is head i % group of row i / group.
template <typename Format>
class BlockAttention {
 public:
  BlockAttention(const PagedAttention& pass, const Attention& attention, int layer, int kv_head,
                 const PagedAttention::Block& block, MatrixView<const float> queries,
                 HugeBuffer& memory)
      : pass_(pass),
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
      const std::size_t of_row = pass.order_[block.rows.begin + i / group_];
      const std::size_t head = kv_head * group_ + i % group_;
      std::copy_n(&queries[of_row][head * head_dim], head_dim, gathered[i].data());
    }
    format_.emplace(pass.kernels_, pass.memory_, layer, kv_head, gathered, pieces);
    p_ = pieces.take<float>(n_, kTile);
    page_scores_ = pieces.take<float>(n_, kTile);
    path_scores_ = pieces.take<float>(n_, path_columns);
    for (AttentionSums* sums : {&tile_, &span_, &total_})
      *sums = sums_at(pieces.take<float>(state_floats(n_, head_dim)), n_, head_dim);
    merge_ = {pieces.take<float>(n_), pieces.take<float>(n_)};
    present_.resize(n_);
  }

  std::size_t size() const { return n_; }
  Merging merging() const { return {kernels(), span_, total_}; }

  // Merges the state of each tile, ascending, with state_for(tile).
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
      const std::size_t of_row = pass_.order_[block_.rows.begin + i / group_];
      const std::size_t head = kv_head * group_ + i % group_;
      kernels().divide(sums, i, out[of_row].subspan(head * head_dim, head_dim));
    }
  }

 private:
  const AttentionKernels& kernels() const { return pass_.kernels_.attention; }
  const RowContext& row(std::size_t i) const {
    return *pass_.rows_[pass_.order_[block_.rows.begin + i]];
  }

  // body(queries, path) for each chain of the block, as far as it lies in it.
  template <typename Body>
  void for_each_chain(Body body) const {
    for (std::size_t c = block_.chains.begin; c < block_.chains.end; ++c) {
      const std::size_t begin = std::max(pass_.chains_[c].begin, block_.rows.begin);
      const std::size_t end = std::min(pass_.chains_[c].end, block_.rows.end);
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

  void add(int tile, bool has_next, const AttentionSums& sums) {
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
      format_->softmax(scores, pages_[tile], tile_);
      kernels().merge_sums(tile_, sums, merge_);
      format_->values(p, pages_[tile], committed, next, merge_, sums.out);
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
    format_->softmax(scores, page, committed, chain_parts_, tile_);
    format_->values(p, page, committed, chain_parts_, tile_.out);
    kernels().merge(tile_, sums);
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

  const PagedAttention& pass_;
  const Attention& attention_;
  const PagedAttention::Block& block_;
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

PagedAttention::PagedAttention(const ModelSpec& spec, const Kernels& kernels, CacheMemory& memory,
                               int n_threads)
    : kernels_(kernels),
      memory_(memory),
      threads_(n_threads),
      done_(std::make_unique<std::atomic<std::size_t>[]>(n_threads)) {
  std::size_t group = 1;
  for (const LayerSpec& layer : spec.layers) {
    for (const Operation& operation : layer.operations) {
      if (const auto* attention = std::get_if<Attention>(&operation.body))
        group = std::max<std::size_t>(group, attention->n_heads / attention->n_kv_heads);
    }
  }
  rows_a_block_ = std::max<std::size_t>(1, kBlockQueries / group);
}

void PagedAttention::begin_pass(std::vector<const RowContext*> rows) {
  rows_ = std::move(rows);
  order_.clear();
  chains_.clear();
  blocks_.clear();
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
    const std::size_t n = order_.size() - begin;
    const std::size_t n_blocks = (n + rows_a_block_ - 1) / rows_a_block_;
    std::size_t chain = first_chain;
    for (std::size_t i = 0; i < n_blocks; ++i) {
      const Range part = share(n, i, n_blocks);
      Block block{{begin + part.begin, begin + part.end}, {}};
      while (chains_[chain].end <= block.rows.begin) ++chain;
      block.chains = {chain, chain};
      while (block.chains.end < chains_.size() && chains_[block.chains.end].begin < block.rows.end)
        ++block.chains.end;
      block.first_position = rows_[order_[block.rows.begin]]->position;
      for (std::size_t r = block.rows.begin; r < block.rows.end; ++r) {
        const int position = rows_[order_[r]]->position;
        block.first_position = std::min(block.first_position, position);
        block.last_position = std::max(block.last_position, position);
      }
      blocks_.push_back(block);
    }
  }
}

void PagedAttention::list_items(const Attention& attention, std::vector<Item>& items) const {
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

Range PagedAttention::share_of(const Item& item, std::size_t total_cost, std::size_t thread) const {
  // A tile is the thread's in whose share of the cost it begins.
  const auto first_at = [&](std::size_t part) -> std::size_t {
    const std::size_t cost = total_cost * part / threads_.size();
    if (cost <= item.first_cost) return item.first_tile;
    const std::size_t tiles = (cost - item.first_cost + item.tile_cost() - 1) / item.tile_cost();
    return std::min<std::size_t>(item.first_tile + tiles, item.end_tile);
  };
  return {first_at(thread), first_at(thread + 1)};
}

template <typename Format>
void PagedAttention::attend_as(const Attention& attention, int layer, int thread,
                               MatrixView<const float> queries, MatrixView<float> out) {
  Thread& own = threads_[thread];
  list_items(attention, own.items);
  const std::size_t total = own.items.back().first_cost + own.items.back().cost();
  for (const Item& item : own.items) {
    const Range tiles = share_of(item, total, thread);
    if (tiles.begin == tiles.end) continue;
    BlockAttention<Format> block(*this, attention, layer, item.kv_head, *item.block, queries,
                                 own.memory);
    if (tiles.end - tiles.begin == static_cast<std::size_t>(item.end_tile - item.first_tile)) {
      Merging merging = block.merging();
      block.run(tiles, [&](int tile) { return merging.at(tile / kSpanTiles); });
      block.write(merging.finish(), item.kv_head, out);
      continue;
    }

    // Shared: what cannot be merged yet is kept, and the last thread to come merges.
    const std::size_t head_dim = attention.head_dim;
    const std::size_t floats = state_floats(block.size(), head_dim);
    const bool begins = static_cast<int>(tiles.begin) == item.first_tile;
    Segment& segment = begins ? own.begun : own.continued;
    segment.spans.clear();
    segment.states.resize((kSpanTiles + (tiles.end - tiles.begin) / kSpanTiles + 2) * floats);
    block.run(tiles, [&](int tile) {
      const int span = tile / kSpanTiles;
      const int span_begin = std::max(span * kSpanTiles, item.first_tile);
      const bool began_elsewhere = span_begin < static_cast<int>(tiles.begin);
      const bool is_new = began_elsewhere || segment.spans.empty() || segment.spans.back() != span;
      if (is_new) segment.spans.push_back(span);
      const AttentionSums state =
          sums_at(&segment.states[(segment.spans.size() - 1) * floats], block.size(), head_dim);
      if (is_new) forget_keys(state);
      return state;
    });
    std::size_t first = thread, n_shares = 0;
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      const Range share = share_of(item, total, t);
      if (share.begin == share.end) continue;
      first = std::min(first, t);
      ++n_shares;
    }
    if (done_[first].fetch_add(1, std::memory_order_acq_rel) + 1 < n_shares) continue;
    done_[first].store(0, std::memory_order_relaxed);
    Merging merging = block.merging();
    for (std::size_t t = first, left = n_shares; left > 0; ++t) {
      const Range share = share_of(item, total, t);
      if (share.begin == share.end) continue;
      --left;
      Segment& part = t == first ? threads_[t].begun : threads_[t].continued;
      for (std::size_t at = 0; at < part.spans.size(); ++at) {
        kernels_.attention.merge(sums_at(&part.states[at * floats], block.size(), head_dim),
                                 merging.at(part.spans[at]));
      }
    }
    block.write(merging.finish(), item.kv_head, out);
  }
}

void PagedAttention::attend(const Attention& attention, int layer, int thread,
                            MatrixView<const float> queries, MatrixView<float> out) {
  switch (memory_.type(layer)) {
    case CacheType::f16:
      return attend_as<FloatFormat<Half>>(attention, layer, thread, queries, out);
    case CacheType::f32:
      return attend_as<FloatFormat<float>>(attention, layer, thread, queries, out);
    case CacheType::q8_0: return attend_as<Q8Format>(attention, layer, thread, queries, out);
  }
}

}  // namespace outrider

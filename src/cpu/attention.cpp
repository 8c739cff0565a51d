#include "cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/attention.h"
#include "numerics/functions.h"

namespace outrider {
namespace {

constexpr int kTilePositions = kPagePositions;
constexpr float kAbsent = -std::numeric_limits<float>::infinity();

// The kernels for the type of the cache.
inline void scores(const VectorKernels& kernels, MatrixView<const float> q, const Half* keys,
                   MatrixView<float> s) {
  kernels.scores_f16(q, keys, s);
}
inline void scores(const VectorKernels& kernels, MatrixView<const float> q, const float* keys,
                   MatrixView<float> s) {
  kernels.scores_f32(q, keys, s);
}
inline void values(const VectorKernels& kernels, MatrixView<const float> p, const Half* v,
                   std::size_t count, MatrixView<float> out) {
  kernels.values_f16(p, v, count, out);
}
inline void values(const VectorKernels& kernels, MatrixView<const float> p, const float* v,
                   std::size_t count, MatrixView<float> out) {
  kernels.values_f32(p, v, count, out);
}

// Softmax's running state of several heads: largest score, sum and weighted values of the keys seen
// so far.
struct Sums {
  explicit Sums(std::vector<float>& memory, std::size_t heads, std::size_t head_dim)
      : heads(heads) {
    memory.resize(heads * (head_dim + 2));
    max = memory.data();
    sum = max + heads;
    out = {sum + heads, heads, head_dim};
  }

  // Takes the keys of `later`, which follow all that were taken before.
  void merge(const VectorKernels& kernels, const Sums& later) {
    if (empty) {
      std::copy_n(later.max, heads * (out.columns() + 2), max);
      empty = false;
      return;
    }
    for (std::size_t head = 0; head < heads; ++head) {
      const float m = std::max(max[head], later.max[head]);
      const float a = exp_f32(max[head] - m), b = exp_f32(later.max[head] - m);
      max[head] = m;
      sum[head] = std::fma(sum[head], a, later.sum[head] * b);
      kernels.merge(a, b, later.out[head], out[head]);
    }
  }

  std::size_t heads;
  float *max, *sum;       // [heads]
  MatrixView<float> out;  // [heads][head_dim]
  bool empty = true;
};

template <typename T>
class RowAttention {
 public:
  RowAttention(const VectorKernels& kernels, CacheMemory& memory, const Attention& attention,
               int layer, int kv_head, const RowContext& row, MatrixView<const float> queries,
               AttentionScratch& scratch)
      : kernels_(kernels),
        memory_(memory),
        attention_(attention),
        layer_(layer),
        kv_head_(kv_head),
        row_(row),
        queries_(queries),
        heads_(queries.rows()),
        tile_(scratch.tile, heads_, queries.columns()),
        span_(scratch.span, heads_, queries.columns()),
        total_(scratch.total, heads_, queries.columns()) {
    scratch.scores.resize(heads_ * kTilePositions);
    p_ = {scratch.scores.data(), heads_, kTilePositions};
    score_path(scratch.path_scores);
  }

  void run(MatrixView<float> out) {
    const int first = attention_.window ? std::max(0, row_.position - *attention_.window + 1) : 0;
    for (int tile = first / kTilePositions; tile <= row_.position / kTilePositions; ++tile) {
      if (tile % kSpanTiles == 0) close_span();
      if (take_tile(tile, first)) span_.merge(kernels_, tile_);
    }
    close_span();
    for (std::size_t head = 0; head < heads_; ++head) {
      for (std::size_t d = 0; d < out.columns(); ++d)
        out[head][d] = total_.out[head][d] / total_.sum[head];
    }
  }

 private:
  // The path's keys lie in a few scratch pages whose places are not their positions: one product
  // for each page that is touched, which all tiles then pick from.
  void score_path(std::vector<float>& memory) {
    for (const CacheRun& run : row_.path) {
      if (page_index(run.page) == path_pages_.size()) path_pages_.push_back(run.page);
    }
    memory.resize(path_pages_.size() * heads_ * kTilePositions);
    for (std::size_t i = 0; i < path_pages_.size(); ++i) {
      path_scores_.emplace_back(memory.data() + i * heads_ * kTilePositions, heads_,
                                kTilePositions);
      scores(kernels_, queries_, memory_.keys<T>(path_pages_[i], layer_, kv_head_),
             path_scores_.back());
    }
  }
  std::size_t page_index(int page) const {
    return std::find(path_pages_.begin(), path_pages_.end(), page) - path_pages_.begin();
  }

  // Softmax and values of the keys at positions [first, row's] of one tile into tile_; false if
  // there are none.
  bool take_tile(int tile, int first) {
    const int start = tile * kTilePositions;
    // Committed keys of the tile, as places in it.
    const int begin = std::max(first - start, 0),
              end = std::min(row_.committed - start, kTilePositions);
    const bool has_committed = begin < end;
    if (has_committed) {
      scores(kernels_, queries_, memory_.keys<T>(row_.pages[tile], layer_, kv_head_), p_);
    }
    for (std::size_t head = 0; head < heads_; ++head) {
      std::fill_n(&p_[head][0], has_committed ? begin : kTilePositions, kAbsent);
      if (has_committed) std::fill(&p_[head][0] + end, &p_[head][0] + kTilePositions, kAbsent);
    }
    path_parts_.clear();
    for (const CacheRun& run : row_.path) {
      const int from = std::max({run.position, start, first});
      const int to = std::min(run.position + run.count, start + kTilePositions);
      if (from >= to) continue;
      const int skip = from - run.position;
      path_parts_.push_back({run.page, run.offset + skip, from - start, to - from});
      const MatrixView<float>& found = path_scores_[page_index(run.page)];
      for (std::size_t head = 0; head < heads_; ++head) {
        std::copy_n(&found[head][run.offset + skip], to - from, &p_[head][from - start]);
      }
    }
    if (!has_committed && path_parts_.empty()) return false;

    const float scale = static_cast<float>(attention_.scale);
    for (std::size_t head = 0; head < heads_; ++head) {
      kernels_.scale(scale, p_[head]);
      if (attention_.softcap) soften(begin, end, p_[head]);
      const auto sums = kernels_.tile_softmax(p_[head].template first<kTilePositions>());
      tile_.max[head] = sums.max;
      tile_.sum[head] = sums.sum;
      std::fill(tile_.out[head].begin(), tile_.out[head].end(), 0.0f);
    }
    if (has_committed) add_values(row_.pages[tile], begin, begin, end - begin);
    for (const CacheRun& part : path_parts_)
      add_values(part.page, part.offset, part.position, part.count);
    return true;
  }

  // Soft cap of the present scores only: absent ones must stay at minus infinity.
  void soften(int begin, int end, std::span<float> p) {
    const float cap = static_cast<float>(*attention_.softcap);
    if (begin < end) kernels_.softcap(cap, p.subspan(begin, end - begin));
    for (const CacheRun& part : path_parts_)
      kernels_.softcap(cap, p.subspan(part.position, part.count));
  }

  // Values at `offset` of a page with the weights at `place` of the tile.
  void add_values(int page, int offset, int place, int count) {
    const std::size_t head_dim = queries_.columns();
    const MatrixView<const float> p(&p_[0][place], heads_, count, kTilePositions);
    values(kernels_, p, memory_.values<T>(page, layer_, kv_head_) + offset * head_dim, count,
           tile_.out);
  }

  void close_span() {
    if (!span_.empty) total_.merge(kernels_, span_);
    span_.empty = true;
  }

  const VectorKernels& kernels_;
  CacheMemory& memory_;
  const Attention& attention_;
  const int layer_, kv_head_;
  const RowContext& row_;
  const MatrixView<const float> queries_;
  const std::size_t heads_;
  MatrixView<float> p_;  // [heads][64]
  Sums tile_, span_, total_;
  std::vector<int> path_pages_;
  std::vector<MatrixView<float>> path_scores_;  // of each path page: [heads][64]
  std::vector<CacheRun> path_parts_;  // of the current tile; `position` is the place in it
};

}  // namespace

void attend(const VectorKernels& kernels, CacheMemory& memory, CacheType type,
            const Attention& attention, int layer, int kv_head, const RowContext& row,
            MatrixView<const float> queries, MatrixView<float> out, AttentionScratch& scratch) {
  if (type == CacheType::f16) {
    RowAttention<Half>(kernels, memory, attention, layer, kv_head, row, queries, scratch).run(out);
  } else {
    RowAttention<float>(kernels, memory, attention, layer, kv_head, row, queries, scratch).run(out);
  }
}

}  // namespace outrider

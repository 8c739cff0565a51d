// What attention does differently by how the cache keeps keys and values: a Format holds a block's
// queries for one kv head and meets them with pages (cpu/attention_block.h).

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/huge_buffer.h"
#include "cache/cache.h"
#include "cpu/cache_memory.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/query_blocks.h"
#include "model/spec.h"
#include "numerics/attention.h"

namespace outrider {

inline std::size_t rounded_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
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
MatrixView<T> columns_of(MatrixView<T> view, std::size_t first, std::size_t count) {
  return {view[0].data() + first, view.rows(), count, view.stride()};
}

// What the rows of a chain, queries [begin, end) of the block, see of a tile in scratch; a run's
// position is its place in the tile.
struct ChainPart {
  Range queries;
  std::vector<CacheRun> runs;
};

inline CacheRun place_of(int page, Places places) {
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

}  // namespace outrider

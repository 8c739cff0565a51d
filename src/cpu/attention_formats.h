// What attention does differently for each way to keep keys and values. A Format holds the queries
// of a block for one kv head, scores them against the keys of pages and adds up the values of pages
// (cpu/attention_block.h); its Memory is the working memory that this takes.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "cache/cache.h"
#include "cpu/bump_allocator.h"
#include "cpu/cache_memory.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/query_blocks.h"
#include "model/spec.h"
#include "numerics/attention.h"

namespace outrider {

template <typename T>
MatrixView<T> columns_of(MatrixView<T> view, std::size_t first, std::size_t count) {
  return {view[0].data() + first, view.rows(), count, view.stride()};
}

// What the rows of a chain see in scratch of one tile. The position of a run is its place in the
// tile.
struct ChainPart {
  Range queries;  // of the block
  std::span<const CacheRun> runs;
};

inline CacheRun place_of(int page, Places places) {
  return {page, places.begin, places.begin, places.end - places.begin};
}

// The scores of a tile, p: [queries][64], of which each query sees the places in `present`.
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
  struct Memory {
    Memory(std::size_t, const Attention&, BumpAllocator&) {}
  };

  FloatFormat(const Kernels& kernels, CacheMemory& cache, int layer, int kv_head,
              MatrixView<const float> queries, const Memory&)
      : kernels_(kernels.attention),
        cache_(cache),
        layer_(layer),
        kv_head_(kv_head),
        queries_(queries) {}

  void scores(int page, Places places, std::optional<int> next, MatrixView<float> p) {
    const T* ahead = next ? cache_.keys<T>(*next, layer_, kv_head_) : nullptr;
    const T* keys = cache_.keys<T>(page, layer_, kv_head_);
    if constexpr (std::is_same_v<T, Half>) {
      kernels_.scores_f16(queries_, keys, places, ahead, p);
    } else {
      kernels_.scores_f32(queries_, keys, places, ahead, p);
    }
  }

  // For a tile whose keys all lie in one page of history: turns scores into weights, then merges
  // the weighted values with `out`.
  void softmax(const TileScores& scores, int, const AttentionSums& sums) { softmax(scores, sums); }
  void values(MatrixView<const float> p, int page, Places committed, std::optional<int> next,
              const MergeFactors& merge, MatrixView<float> out) {
    const T* ahead = next ? cache_.values<T>(*next, layer_, kv_head_) : nullptr;
    add(p, place_of(page, committed), ahead, &merge, out);
  }

  // For a tile with keys in scratch, and perhaps in a page of history: turns scores into weights,
  // then makes `out` the weighted values.
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
    const T* values = cache_.values<T>(run.page, layer_, kv_head_) + run.offset * out.columns();
    const auto weights = columns_of(p, run.position, run.count);
    if constexpr (std::is_same_v<T, Half>) {
      kernels_.values_f16(weights, values, run.count, ahead, merge, out);
    } else {
      kernels_.values_f32(weights, values, run.count, ahead, merge, out);
    }
  }

  const AttentionKernels& kernels_;
  CacheMemory& cache_;
  const int layer_, kv_head_;
  const MatrixView<const float> queries_;
};

// Keys and values in q8_0. All weights of a query in a tile become integers with one factor, set by
// the largest of them, so the softmax is of the whole tile, not of one run of scratch after
// another. A run may have other places in its page than in the tile.
class Q8Format {
 public:
  struct Memory {
    Memory(std::size_t n, const Attention& attention, BumpAllocator& memory)
        : q(memory.take<std::int8_t>(n, attention.key_dim)),
          d(memory.take<float>(n, attention.key_dim / kKeyGroup)),
          bias(memory.take<std::int32_t>(n, attention.key_dim / kKeyGroup)),
          weights(memory.take<std::int16_t>(n, kTile)),
          run_weights(memory.take<std::int16_t>(n, kTile)),
          sums(memory.take<std::int32_t>(n, attention.value_dim)),
          factors(memory.take<float>(n).data()) {}

    MatrixView<std::int8_t> q;                      // the queries, quantized
    MatrixView<float> d;                            // [n][groups]
    MatrixView<std::int32_t> bias;                  // [n][groups]
    MatrixView<std::int16_t> weights, run_weights;  // [n][64], by place in the tile, in a page
    MatrixView<std::int32_t> sums;                  // [n][value_dim]
    float* factors;                                 // [n]
  };

  Q8Format(const Kernels& kernels, CacheMemory& cache, int layer, int kv_head,
           MatrixView<const float> queries, const Memory& memory)
      : kernels_(kernels.attention),
        cache_(cache),
        layer_(layer),
        kv_head_(kv_head),
        memory_(memory) {
    std::int16_t sums16[kHeadDimMax / 16];
    for (std::size_t i = 0; i < queries.rows(); ++i) {
      kernels.products.quantize(queries[i], kKeyGroup,
                                {memory.q[i].data(), memory.d[i].data(), sums16});
      for (std::size_t group = 0; group < queries.columns() / kKeyGroup; ++group)
        memory.bias[i][group] = -128 * (sums16[2 * group] + sums16[2 * group + 1]);
    }
  }

  void scores(int page, Places places, std::optional<int> next, MatrixView<float> p) {
    const KeysQ8 keys = keys_of(page), ahead = keys_of(next.value_or(page));
    kernels_.scores_q8_0({memory_.q, memory_.d, memory_.bias}, keys, places,
                         next ? &ahead : nullptr, p);
  }

  void softmax(const TileScores& scores, int page, const AttentionSums& sums) {
    softmax(scores, head_of(page).value_scales, {0, scores.p.rows()}, sums);
  }
  void values(MatrixView<const float>, int page, Places committed, std::optional<int> next,
              const MergeFactors& merge, MatrixView<float> out) {
    kernels_.values_q8_0_merged(memory_.weights, head_of(page).values, committed,
                                next ? head_of(*next).values : nullptr, memory_.factors, merge,
                                out);
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
    std::fill_n(memory_.sums[0].data(), memory_.sums.rows() * memory_.sums.stride(), 0);
    const CacheRun of_page = place_of(page, committed);
    for (const ChainPart& chain : chains) {
      if (of_page.count > 0) add_run(of_page, chain.queries);
      for (const CacheRun& run : chain.runs) add_run(run, chain.queries);
    }
    kernels_.widen(memory_.factors, memory_.sums, out);
  }

 private:
  CacheMemory::HeadQ8 head_of(int page) { return cache_.head_q8_0(page, layer_, kv_head_); }
  KeysQ8 keys_of(int page) {
    const CacheMemory::HeadQ8 head = head_of(page);
    return {head.keys, head.key_scales};
  }

  void softmax(const TileScores& scores, const Half* value_scales, Range queries,
               const AttentionSums& sums) {
    const TileScores some = scores.part(queries);
    const AttentionSums of_some{sums.max + queries.begin, sums.sum + queries.begin, {}};
    kernels_.softmax_q8_0(some.scale(), some.softcap(), some.present, some.p, value_scales,
                          rows_of(memory_.weights, queries), memory_.factors + queries.begin,
                          of_some);
  }

  void add_run(const CacheRun& run, Range queries) {
    for (std::size_t q = queries.begin; q < queries.end; ++q) {
      std::fill_n(memory_.run_weights[q].data(), kTile, std::int16_t{0});
      std::copy_n(&memory_.weights[q][run.position], run.count,
                  &memory_.run_weights[q][run.offset]);
    }
    const Places places{static_cast<std::uint8_t>(run.offset),
                        static_cast<std::uint8_t>(run.offset + run.count)};
    kernels_.values_q8_0(rows_of(memory_.run_weights, queries), head_of(run.page).values, places,
                         rows_of(memory_.sums, queries));
  }

  const AttentionKernels& kernels_;
  CacheMemory& cache_;
  const int layer_, kv_head_;
  const Memory memory_;
};

}  // namespace outrider

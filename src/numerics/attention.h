// Attention of one row and one head in plain loops, the reference for every backend
// (docs/arithmetic.md, "Attention"): softmax by tiles (Milakov and Gimelshein 2018,
// arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135) whose merges have one order.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "numerics/half.h"
#include "numerics/softmax.h"

namespace outrider {

// Tiles merge in order within a span of 16, spans in order with each other.
inline constexpr int kSpanTiles = 16;
inline constexpr int kSpan = kSpanTiles * static_cast<int>(kTile);

// How the cache keeps keys and values: clamped to +-65504 (NaN passes), in f16 also rounded to
// nearest even. q8_0 keeps keys in groups of 32 channels and values in one group per head
// (numerics/quantize.h).
enum class CacheType { f16, f32, q8_0 };
float read_back(float x, CacheType type);  // f16 and f32

// Groups of a key, and of the query that it meets, in q8_0.
inline constexpr std::size_t kKeyGroup = 32;

// How heads of these lengths are kept where the cache is of a type: f16 instead of q8_0 if one of
// the two is no multiple of 32.
CacheType kept_type(CacheType type, std::size_t key_dim, std::size_t value_dim);

struct AttentionRule {
  float scale = 1;                    // of the scores: the float nearest the spec's double
  std::optional<float> softcap = {};  // c: a score s becomes c * tanh(s / c)
  std::optional<int> window = {};     // w: a key counts if row position - key position < w
  int first_key = 0;                  // keys of earlier positions do not count, but the row's own
};

// Key (after rope) and value of a position on the row's path, its own included, before conversion
// to the cache's type.
struct AttentionKey {
  int position;
  std::span<const float> k, v;
};

// `keys` may be in any order; positions differ; at least one is within the window. Sizes: q and k
// [key_dim], v and out [value_dim]. A key whose weight underflows to +0 does not enter, so a NaN in
// its v does not show.
void attention_reference(std::span<const float> q, int position, std::span<const AttentionKey> keys,
                         const AttentionRule& rule, CacheType type, std::span<float> out);

// A tile's weights for values in q8_0: r_j = p_j * d_j (0 where p_j is 0), R the largest, P_j =
// round-to-even(r_j * (16383 / R)). Returns R / 16383. All P are 0 and so is the result if R <
// 2^-110; they are 0 and the result is NaN if an r is NaN. d: the values' scales, bits of halves.
float weigh_reference(std::span<const float, kTile> p, std::span<const Half, kTile> d,
                      std::span<std::int16_t, kTile> weights);

// y = c * tanh(y / c), each operation rounded.
void softcap_reference(float c, std::span<float> y);
// o = fma(o, a, o_t * b), elementwise: the merge of two tiles or spans.
void merge_reference(float a, float b, std::span<const float> o_t, std::span<float> o);

}  // namespace outrider

#include "numerics/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "numerics/functions.h"
#include "numerics/half.h"
#include "numerics/quantize.h"

namespace outrider {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Weights and their sum relative to exp(max), and the values they weigh.
struct Partial {
  float max, sum;
  std::vector<float> o;
};

void merge(std::optional<Partial>& into, Partial next) {
  if (!into) {
    into = std::move(next);
    return;
  }
  const float max = into->max >= next.max || std::isnan(into->max) ? into->max : next.max;
  const float a = exp_f32(into->max - max), b = exp_f32(next.max - max);
  into->max = max;
  into->sum = std::fma(into->sum, a, next.sum * b);
  merge_reference(a, b, next.o, into->o);
}

using Tile = std::array<const AttentionKey*, kTile>;  // by position mod 64, null where absent

float score_of(std::span<const float> q, std::span<const float> k, CacheType type) {
  float score = 0;
  for (std::size_t d = 0; d < q.size(); ++d) score = std::fma(q[d], read_back(k[d], type), score);
  return score;
}

float score_of_q8_0(std::span<const float> q, std::span<const float> k) {
  float score = 0;
  for (std::size_t first = 0; first < q.size(); first += kKeyGroup) {
    std::int8_t q8[kKeyGroup] = {}, k8[kKeyGroup] = {};
    std::int16_t unused[kKeyGroup / 16];
    float d_q;
    Half d_k;
    quantize_reference(q.subspan(first, kKeyGroup), kKeyGroup, {q8, &d_q, unused});
    keep_q8_0_reference(k.subspan(first, kKeyGroup), kKeyGroup, k8, &d_k);
    int sum = 0;
    for (std::size_t d = 0; d < kKeyGroup; ++d) sum += q8[d] * k8[d];
    score = std::fma(half_to_float(d_k) * d_q, static_cast<float>(sum), score);
  }
  return score;
}

std::vector<float> weighted(std::span<const float, kTile> p, const Tile& tile,
                            std::size_t value_dim, CacheType type) {
  std::vector<float> o(value_dim);
  for (std::size_t j = 0; j < kTile; ++j) {
    if (tile[j] == nullptr || p[j] == 0) continue;
    for (std::size_t d = 0; d < value_dim; ++d)
      o[d] = std::fma(p[j], read_back(tile[j]->v[d], type), o[d]);
  }
  return o;
}

std::vector<float> weighted_q8_0(std::span<const float, kTile> p, const Tile& tile,
                                 std::size_t value_dim) {
  std::vector<std::int8_t> v8(kTile * value_dim);
  std::array<Half, kTile> d_v{};
  for (std::size_t j = 0; j < kTile; ++j) {
    if (tile[j] != nullptr) keep_q8_0_reference(tile[j]->v, value_dim, &v8[j * value_dim], &d_v[j]);
  }
  std::array<std::int16_t, kTile> weights;
  const float factor = weigh_reference(p, d_v, weights);
  std::vector<float> o(value_dim);
  for (std::size_t d = 0; d < value_dim; ++d) {
    int sum = 0;
    for (std::size_t j = 0; j < kTile; ++j) sum += weights[j] * v8[j * value_dim + d];
    o[d] = factor * static_cast<float>(sum);
  }
  return o;
}

std::optional<Partial> attend_tile(std::span<const float> q, const Tile& tile,
                                   std::size_t value_dim, const AttentionRule& rule,
                                   CacheType type) {
  if (std::all_of(tile.begin(), tile.end(), [](const AttentionKey* key) { return key == nullptr; }))
    return {};
  const bool in_8_bits = type == CacheType::q8_0;
  std::array<float, kTile> p;
  p.fill(-kInfinity);
  for (std::size_t j = 0; j < kTile; ++j) {
    if (tile[j] == nullptr) continue;
    p[j] = rule.scale * (in_8_bits ? score_of_q8_0(q, tile[j]->k) : score_of(q, tile[j]->k, type));
    if (rule.softcap) softcap_reference(*rule.softcap, {&p[j], 1});
  }
  const TileSum sums = tile_softmax_reference(p);
  return Partial{
      sums.max, sums.sum,
      in_8_bits ? weighted_q8_0(p, tile, value_dim) : weighted(p, tile, value_dim, type)};
}

}  // namespace

float read_back(float x, CacheType type) {
  if (std::isnan(x)) return x;
  const float clamped = std::clamp(x, -65504.0f, 65504.0f);
  return type == CacheType::f16 ? half_to_float(float_to_half(clamped)) : clamped;
}

CacheType kept_type(CacheType type, std::size_t key_dim, std::size_t value_dim) {
  const bool has_groups = key_dim % kKeyGroup == 0 && value_dim % kKeyGroup == 0;
  return type == CacheType::q8_0 && !has_groups ? CacheType::f16 : type;
}

void attention_reference(std::span<const float> q, int position, std::span<const AttentionKey> keys,
                         const AttentionRule& rule, CacheType type, std::span<float> out) {
  type = kept_type(type, q.size(), out.size());
  std::optional<Partial> all;
  for (int span = 0; span <= position; span += kSpan) {
    std::optional<Partial> of_span;
    for (int begin = span; begin < span + kSpan; begin += static_cast<int>(kTile)) {
      Tile tile{};
      for (const AttentionKey& key : keys) {
        if (key.position < begin || key.position >= begin + static_cast<int>(kTile)) continue;
        if (rule.window && position - key.position >= *rule.window) continue;
        if (key.position < std::min(rule.first_key, position)) continue;
        tile[static_cast<std::size_t>(key.position - begin)] = &key;
      }
      if (auto of_tile = attend_tile(q, tile, out.size(), rule, type))
        merge(of_span, std::move(*of_tile));
    }
    if (of_span) merge(all, std::move(*of_span));
  }
  CHECK(all.has_value());
  for (std::size_t d = 0; d < out.size(); ++d) out[d] = all->o[d] / all->sum;
}

float weigh_reference(std::span<const float, kTile> p, std::span<const Half, kTile> d,
                      std::span<std::int16_t, kTile> weights) {
  std::array<float, kTile> r;
  float largest = 0;
  for (std::size_t j = 0; j < kTile; ++j) {
    r[j] = p[j] == 0 ? 0 : p[j] * half_to_float(d[j]);
    largest = r[j] > largest || std::isnan(r[j]) ? r[j] : largest;
  }
  std::fill(weights.begin(), weights.end(), std::int16_t{0});
  if (std::isnan(largest)) return largest;
  if (largest < 0x1p-110f) return 0;
  const float inverse = 16383 / largest;
  for (std::size_t j = 0; j < kTile; ++j)
    weights[j] = static_cast<std::int16_t>(std::nearbyint(r[j] * inverse));
  return largest / 16383;
}

void softcap_reference(float c, std::span<float> y) {
  for (float& value : y) value = c * tanh_f32(value / c);
}

void merge_reference(float a, float b, std::span<const float> o_t, std::span<float> o) {
  for (std::size_t d = 0; d < o.size(); ++d) o[d] = std::fma(o[d], a, o_t[d] * b);
}

}  // namespace outrider

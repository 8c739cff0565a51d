#include "numerics/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "numerics/functions.h"
#include "numerics/half.h"

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

std::optional<Partial> attend_tile(std::span<const float> q, const Tile& tile,
                                   const AttentionRule& rule, KeptAs kept_as) {
  if (std::all_of(tile.begin(), tile.end(), [](const AttentionKey* key) { return key == nullptr; }))
    return {};
  std::array<float, kTile> p;
  p.fill(-kInfinity);
  for (std::size_t j = 0; j < kTile; ++j) {
    if (tile[j] == nullptr) continue;
    float score = 0;
    for (std::size_t d = 0; d < q.size(); ++d)
      score = std::fma(q[d], read_back(tile[j]->k[d], kept_as), score);
    p[j] = rule.scale * score;
    if (rule.softcap) softcap_reference(*rule.softcap, {&p[j], 1});
  }
  const TileSum tile_sum = tile_softmax_reference(p);
  Partial result{tile_sum.max, tile_sum.sum, std::vector<float>(q.size())};
  for (std::size_t j = 0; j < kTile; ++j) {
    if (tile[j] == nullptr || p[j] == 0) continue;
    for (std::size_t d = 0; d < q.size(); ++d)
      result.o[d] = std::fma(p[j], read_back(tile[j]->v[d], kept_as), result.o[d]);
  }
  return result;
}

}  // namespace

float read_back(float x, KeptAs kept_as) {
  if (std::isnan(x)) return x;
  const float clamped = std::clamp(x, -65504.0f, 65504.0f);
  return kept_as == KeptAs::f16 ? half_to_float(float_to_half(clamped)) : clamped;
}

void attention_reference(std::span<const float> q, int position, std::span<const AttentionKey> keys,
                         const AttentionRule& rule, KeptAs kept_as, std::span<float> out) {
  std::optional<Partial> all;
  for (int span = 0; span <= position; span += kSpan) {
    std::optional<Partial> of_span;
    for (int begin = span; begin < span + kSpan; begin += static_cast<int>(kTile)) {
      Tile tile{};
      for (const AttentionKey& key : keys) {
        if (key.position < begin || key.position >= begin + static_cast<int>(kTile)) continue;
        if (rule.window && position - key.position >= *rule.window) continue;
        tile[static_cast<std::size_t>(key.position - begin)] = &key;
      }
      if (auto of_tile = attend_tile(q, tile, rule, kept_as)) merge(of_span, std::move(*of_tile));
    }
    if (of_span) merge(all, std::move(*of_span));
  }
  CHECK(all.has_value());
  for (std::size_t d = 0; d < out.size(); ++d) out[d] = all->o[d] / all->sum;
}

void softcap_reference(float c, std::span<float> y) {
  for (float& value : y) value = c * tanh_f32(value / c);
}

void merge_reference(float a, float b, std::span<const float> o_t, std::span<float> o) {
  for (std::size_t d = 0; d < o.size(); ++d) o[d] = std::fma(o[d], a, o_t[d] * b);
}

}  // namespace outrider

#include "cpu/cache_memory.h"

#include <algorithm>

#include "base/error.h"
#include "numerics/attention.h"

namespace outrider {
namespace {

std::size_t head_bytes(CacheType type, std::size_t key_dim, std::size_t value_dim) {
  const std::size_t elements = (key_dim + value_dim) * kPagePositions;
  const std::size_t scales = (key_dim / kKeyGroup + 1) * kPagePositions;
  switch (type) {
    case CacheType::f16: return elements * sizeof(Half);
    case CacheType::q8_0: return elements + scales * sizeof(Half);
    case CacheType::f32: return elements * sizeof(float);
  }
  return 0;
}

}  // namespace

std::vector<CacheMemory::Layer> CacheMemory::layout(const ModelSpec& spec, CacheType type) {
  std::vector<Layer> layers;
  std::size_t offset = 0;
  for (const LayerSpec& layer : spec.layers) {
    layers.push_back({.offset = offset});
    if (const Attention* attention = attention_of(layer)) {
      Layer& added = layers.back();
      added.n_kv_heads = attention->n_kv_heads;
      added.key_dim = attention->key_dim;
      added.value_dim = attention->value_dim;
      added.type = kept_type(type, added.key_dim, added.value_dim);
      added.head_bytes = head_bytes(added.type, added.key_dim, added.value_dim);
      offset += added.n_kv_heads * added.head_bytes;
    }
  }
  layers.push_back({.offset = offset});  // the end of the page
  return layers;
}

std::size_t CacheMemory::page_bytes(const ModelSpec& spec, CacheType type) {
  return layout(spec, type).back().offset;
}

CacheMemory::CacheMemory(const ModelSpec& spec, CacheType type, int pages)
    : layers_(layout(spec, type)),
      page_bytes_(layers_.back().offset),
      memory_(page_bytes_ * pages) {
  layers_.pop_back();
}

CacheMemory::HeadQ8 CacheMemory::head_q8_0(int page, int layer, int head) {
  const std::size_t key_dim = layers_[layer].key_dim, value_dim = layers_[layer].value_dim;
  std::byte* const first = place(page, layer, head);
  std::byte* const key_scales = first + key_dim * kPagePositions;
  std::byte* const values = key_scales + key_dim / kKeyGroup * kPagePositions * sizeof(Half);
  std::byte* const value_scales = values + value_dim * kPagePositions;
  return {reinterpret_cast<std::uint8_t*>(first), reinterpret_cast<Half*>(key_scales),
          reinterpret_cast<std::int8_t*>(values), reinterpret_cast<Half*>(value_scales)};
}

void CacheMemory::store_key(const AttentionKernels& kernels, const CacheRun& place, int layer,
                            int head, std::span<const float> key) {
  const std::size_t key_dim = key.size(), at = place.offset;
  CHECK(key_dim <= kHeadDimMax);
  switch (layers_[layer].type) {
    case CacheType::f16: {
      Half rounded[kHeadDimMax];
      kernels.clamp_to_half(key, rounded);
      Half* to = keys<Half>(place.page, layer, head) + at;
      for (std::size_t d = 0; d < key_dim; ++d) to[d * kPagePositions] = rounded[d];
      break;
    }
    case CacheType::f32: {
      float clamped[kHeadDimMax];
      kernels.clamp_to_float(key, clamped);
      float* to = keys<float>(place.page, layer, head) + at;
      for (std::size_t d = 0; d < key_dim; ++d) to[d * kPagePositions] = clamped[d];
      break;
    }
    case CacheType::q8_0: {
      const HeadQ8 to = head_q8_0(place.page, layer, head);
      std::int8_t q[kHeadDimMax];
      Half scales[kHeadDimMax / kKeyGroup];
      kernels.keep_q8_0(key, kKeyGroup, q, scales);
      for (std::size_t d = 0; d < key_dim; ++d)
        to.keys[(d / 4 * kPagePositions + at) * 4 + d % 4] = static_cast<std::uint8_t>(q[d] + 128);
      for (std::size_t group = 0; group < key_dim / kKeyGroup; ++group)
        to.key_scales[group * kPagePositions + at] = scales[group];
      break;
    }
  }
}

void CacheMemory::store_value(const AttentionKernels& kernels, const CacheRun& place, int layer,
                              int head, std::span<const float> value) {
  const std::size_t value_dim = value.size(), at = place.offset;
  CHECK(value_dim <= kHeadDimMax);
  switch (layers_[layer].type) {
    case CacheType::f16:
      kernels.clamp_to_half(value, values<Half>(place.page, layer, head) + at * value_dim);
      break;
    case CacheType::f32:
      kernels.clamp_to_float(value, values<float>(place.page, layer, head) + at * value_dim);
      break;
    case CacheType::q8_0: {
      const HeadQ8 to = head_q8_0(place.page, layer, head);
      std::int8_t q[kHeadDimMax];
      kernels.keep_q8_0(value, value_dim, q, &to.value_scales[at]);
      for (std::size_t d = 0; d < value_dim; ++d)
        to.values[(at / 2 * value_dim + d) * 2 + at % 2] = q[d];
      break;
    }
  }
}

template <typename T>
void CacheMemory::copy_floats(const CacheCopy& copy, int layer, int head) {
  const std::size_t key_dim = layers_[layer].key_dim, value_dim = layers_[layer].value_dim;
  const T* from = keys<T>(copy.from_page, layer, head) + copy.from_offset;
  T* to = keys<T>(copy.to_page, layer, head) + copy.to_offset;
  for (std::size_t d = 0; d < key_dim; ++d)
    std::copy_n(from + d * kPagePositions, copy.count, to + d * kPagePositions);
  std::copy_n(values<T>(copy.from_page, layer, head) + copy.from_offset * value_dim,
              copy.count * value_dim,
              values<T>(copy.to_page, layer, head) + copy.to_offset * value_dim);
}

void CacheMemory::copy_q8_0(const CacheCopy& copy, int layer, int head) {
  const std::size_t key_dim = layers_[layer].key_dim, value_dim = layers_[layer].value_dim;
  const HeadQ8 from = head_q8_0(copy.from_page, layer, head);
  const HeadQ8 to = head_q8_0(copy.to_page, layer, head);
  for (std::size_t unit = 0; unit < key_dim / 4; ++unit) {
    const std::size_t row = unit * kPagePositions;
    std::copy_n(from.keys + (row + copy.from_offset) * 4, copy.count * 4,
                to.keys + (row + copy.to_offset) * 4);
  }
  for (std::size_t group = 0; group < key_dim / kKeyGroup; ++group) {
    const std::size_t row = group * kPagePositions;
    std::copy_n(from.key_scales + row + copy.from_offset, copy.count,
                to.key_scales + row + copy.to_offset);
  }
  // The values of two positions are interleaved.
  for (int i = 0; i < copy.count; ++i) {
    const std::size_t a = copy.from_offset + i, b = copy.to_offset + i;
    const std::int8_t* value = from.values + a / 2 * value_dim * 2 + a % 2;
    std::int8_t* place = to.values + b / 2 * value_dim * 2 + b % 2;
    for (std::size_t d = 0; d < 2 * value_dim; d += 2) place[d] = value[d];
  }
  std::copy_n(from.value_scales + copy.from_offset, copy.count, to.value_scales + copy.to_offset);
}

void CacheMemory::copy(std::span<const CacheCopy> copies) {
  for (const CacheCopy& copy : copies) {
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      for (int head = 0; head < layers_[layer].n_kv_heads; ++head) {
        switch (layers_[layer].type) {
          case CacheType::f16: copy_floats<Half>(copy, layer, head); break;
          case CacheType::f32: copy_floats<float>(copy, layer, head); break;
          case CacheType::q8_0: copy_q8_0(copy, layer, head); break;
        }
      }
    }
  }
}

}  // namespace outrider

#include "cpu/cache_memory.h"

#include <algorithm>

#include "base/error.h"

namespace outrider {
namespace {

std::size_t element_bytes(CacheType type) {
  return type == CacheType::f16 ? sizeof(Half) : sizeof(float);
}

const Attention* attention_of(const LayerSpec& layer) {
  for (const Operation& operation : layer.operations) {
    if (const auto* attention = std::get_if<Attention>(&operation.body)) return attention;
  }
  return nullptr;
}

}  // namespace

std::size_t CacheMemory::page_bytes(const ModelSpec& spec, CacheType type) {
  std::size_t bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    if (const Attention* attention = attention_of(layer)) {
      bytes += std::size_t{2} * attention->n_kv_heads * attention->head_dim * kPagePositions *
               element_bytes(type);
    }
  }
  return bytes;
}

CacheMemory::CacheMemory(const ModelSpec& spec, CacheType type, int pages)
    : type_(type),
      element_bytes_(element_bytes(type)),
      page_bytes_(page_bytes(spec, type)),
      memory_(page_bytes_ * pages) {
  std::size_t offset = 0;
  for (const LayerSpec& layer : spec.layers) {
    const Attention* attention = attention_of(layer);
    layers_.push_back(
        {offset, attention ? attention->n_kv_heads : 0, attention ? attention->head_dim : 0});
    offset += std::size_t{2} * layers_.back().n_kv_heads * layers_.back().head_dim *
              kPagePositions * element_bytes_;
  }
}

void CacheMemory::store(const VectorKernels& kernels, const CacheRun& place, int layer, int head,
                        std::span<const float> key, std::span<const float> value) {
  const std::size_t head_dim = key.size();
  CHECK(head_dim <= kHeadDimMax);
  if (type_ == CacheType::f16) {
    Half rounded[kHeadDimMax];
    kernels.clamp_to_half(key, rounded);
    Half* to = keys<Half>(place.page, layer, head) + place.offset;
    for (std::size_t d = 0; d < head_dim; ++d) to[d * kPagePositions] = rounded[d];
    kernels.clamp_to_half(value, values<Half>(place.page, layer, head) + place.offset * head_dim);
  } else {
    float clamped[kHeadDimMax];
    kernels.clamp_to_float(key, clamped);
    float* to = keys<float>(place.page, layer, head) + place.offset;
    for (std::size_t d = 0; d < head_dim; ++d) to[d * kPagePositions] = clamped[d];
    kernels.clamp_to_float(value, values<float>(place.page, layer, head) + place.offset * head_dim);
  }
}

template <typename T>
void CacheMemory::copy_elements(const CacheCopy& copy) {
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const std::size_t head_dim = layers_[layer].head_dim;
    for (int head = 0; head < layers_[layer].n_kv_heads; ++head) {
      const T* from = keys<T>(copy.from_page, layer, head) + copy.from_offset;
      T* to = keys<T>(copy.to_page, layer, head) + copy.to_offset;
      for (std::size_t d = 0; d < head_dim; ++d) {
        std::copy_n(from + d * kPagePositions, copy.count, to + d * kPagePositions);
      }
      std::copy_n(values<T>(copy.from_page, layer, head) + copy.from_offset * head_dim,
                  copy.count * head_dim,
                  values<T>(copy.to_page, layer, head) + copy.to_offset * head_dim);
    }
  }
}

void CacheMemory::copy(std::span<const CacheCopy> copies) {
  for (const CacheCopy& copy : copies) {
    type_ == CacheType::f16 ? copy_elements<Half>(copy) : copy_elements<float>(copy);
  }
}

}  // namespace outrider

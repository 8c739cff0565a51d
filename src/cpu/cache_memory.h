// Where keys and values lie. A page holds 64 positions of all layers; in it, for each layer and kv
// head, the keys as [head_dim][64], so that one vector holds one channel of many positions, then
// the values as [64][head_dim].

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "cache/cache.h"
#include "cpu/kernels/kernels.h"
#include "model/backend.h"

namespace outrider {

class CacheMemory {
 public:
  CacheMemory(const ModelSpec& spec, CacheType type, int pages);

  static std::size_t page_bytes(const ModelSpec& spec, CacheType type);

  // T is Half for CacheType::f16, float for f32.
  template <typename T>
  T* keys(int page, int layer, int head) {
    return reinterpret_cast<T*>(memory_.begin() + place(page, layer, head));
  }
  template <typename T>
  T* values(int page, int layer, int head) {
    return keys<T>(page, layer, head) + layers_[layer].head_dim * kPagePositions;
  }

  // One position's key and value, both [n_kv_heads of it][head_dim] for head `head`: clamped and
  // rounded as the type says.
  void store(const VectorKernels& kernels, const CacheRun& place, int layer, int head,
             std::span<const float> key, std::span<const float> value);

  void copy(std::span<const CacheCopy> copies);

 private:
  struct Layer {
    std::size_t offset = 0;  // in the page
    int n_kv_heads = 0;      // 0: no attention in this layer
    int head_dim = 0;
  };
  std::size_t place(int page, int layer, int head) const {
    const Layer& at = layers_[layer];
    return page * page_bytes_ + at.offset +
           head * (2 * at.head_dim * kPagePositions * element_bytes_);
  }
  template <typename T>
  void copy_elements(const CacheCopy& copy);

  CacheType type_;
  std::size_t element_bytes_, page_bytes_;
  std::vector<Layer> layers_;
  HugeBuffer memory_;  // untouched pages take no memory
};

}  // namespace outrider

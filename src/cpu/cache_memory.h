// Where keys and values lie. A page holds 64 positions of all layers; in it, for each layer and kv
// head:
//
//   f16, f32  keys [key_dim][64], so that one vector holds one channel of many positions;
//             values [64][value_dim]
//   q8_0      keys [key_dim / 4][64][4], their scales [key_dim / 32][64],
//             values [32][value_dim][2], their scales [64] (kernels/attention_kernels.h)

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "cache/cache.h"
#include "cpu/kernels/attention_kernels.h"
#include "model/backend.h"

namespace outrider {

class CacheMemory {
 public:
  CacheMemory(const ModelSpec& spec, CacheType type, int pages);

  static std::size_t page_bytes(const ModelSpec& spec, CacheType type);

  // How a layer keeps keys and values: as asked for, as far as the lengths of its heads allow it
  // (kept_type() in numerics/attention.h).
  CacheType type(int layer) const { return layers_[layer].type; }

  // T is Half where the layer keeps f16, float for f32.
  template <typename T>
  T* keys(int page, int layer, int head) {
    return reinterpret_cast<T*>(place(page, layer, head));
  }
  template <typename T>
  T* values(int page, int layer, int head) {
    return keys<T>(page, layer, head) + layers_[layer].key_dim * kPagePositions;
  }
  // Where the layer keeps q8_0.
  struct HeadQ8 {
    std::uint8_t* keys;
    Half* key_scales;
    std::int8_t* values;
    Half* value_scales;
  };
  HeadQ8 head_q8_0(int page, int layer, int head);

  // Stores the key, [key_dim], or value, [value_dim], of one position and kv head, clamped and
  // rounded as the type says.
  void store_key(const AttentionKernels& kernels, const CacheRun& place, int layer, int head,
                 std::span<const float> key);
  void store_value(const AttentionKernels& kernels, const CacheRun& place, int layer, int head,
                   std::span<const float> value);

  void copy(std::span<const CacheCopy> copies);

 private:
  struct Layer {
    std::size_t offset = 0;  // in the page
    int n_kv_heads = 0;      // 0: no attention in this layer
    int key_dim = 0, value_dim = 0;
    CacheType type = CacheType::f16;
    std::size_t head_bytes = 0;
  };
  static std::vector<Layer> layout(const ModelSpec& spec, CacheType type);

  std::byte* place(int page, int layer, int head) {
    const Layer& at = layers_[layer];
    return memory_.begin() + page * page_bytes_ + at.offset + head * at.head_bytes;
  }
  template <typename T>
  void copy_floats(const CacheCopy& copy, int layer, int head);
  void copy_q8_0(const CacheCopy& copy, int layer, int head);

  std::vector<Layer> layers_;
  std::size_t page_bytes_;
  HugeBuffer memory_;  // untouched pages take no memory
};

}  // namespace outrider

#include "cpu/cache_memory.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "numerics/attention.h"
#include "numerics/half.h"
#include "numerics/quantize.h"

namespace outrider {
namespace {

// Channels of a layer's keys and of its values.
struct Lengths {
  int key_dim, value_dim;
};

constexpr CacheType kTypes[] = {CacheType::f16, CacheType::f32, CacheType::q8_0};
constexpr int kHeads = 3, kPages = 3;

// A layer of heads of each of these lengths.
ModelSpec spec_of(std::span<const Lengths> layers) {
  ModelSpec spec;
  for (const auto [key_dim, value_dim] : layers) {
    Attention attention;
    attention.n_heads = attention.n_kv_heads = kHeads;
    attention.key_dim = key_dim;
    attention.value_dim = value_dim;
    spec.layers.push_back({{{std::nullopt, attention, std::nullopt}}});
  }
  return spec;
}

// A memory whose pages hold random keys and values everywhere, and what it ought to hold.
class Scene {
 public:
  Scene(std::span<const Lengths> layers, CacheType type)
      : layers_(layers), memory_(spec_of(layers), type, kPages) {
    for (int page = 0; page < kPages; ++page) {
      for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer) {
        for (int head = 0; head < kHeads; ++head) {
          for (int place = 0; place < kPagePositions; ++place) store(page, layer, head, place);
        }
      }
    }
  }

  CacheMemory& memory() { return memory_; }

  void copy(const CacheCopy& copy) {
    memory_.copy({&copy, 1});
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      for (int head = 0; head < kHeads; ++head) {
        for (int i = 0; i < copy.count; ++i) {
          expected_[index(copy.to_page, layer, head, copy.to_offset + i)] =
              expected_[index(copy.from_page, layer, head, copy.from_offset + i)];
        }
      }
    }
  }

  // All of it: what is stored at one place changes no other.
  void check() {
    for (int page = 0; page < kPages; ++page) {
      for (int layer = 0; layer < static_cast<int>(layers_.size()); ++layer) {
        for (int head = 0; head < kHeads; ++head) {
          for (int place = 0; place < kPagePositions; ++place) {
            ASSERT_EQ(kept(page, layer, head, place), expected_[index(page, layer, head, place)])
                << "page " << page << " layer " << layer << " head " << head << " place " << place;
          }
        }
      }
    }
  }

 private:
  std::size_t index(int page, std::size_t layer, int head, int place) const {
    return ((page * layers_.size() + layer) * kHeads + head) * kPagePositions + place;
  }

  void store(int page, int layer, int head, int place) {
    std::vector<float> key(layers_[layer].key_dim), value(layers_[layer].value_dim);
    for (std::vector<float>* x : {&key, &value})
      for (float& channel : *x) channel = normal_(random_);
    const AttentionKernels& kernels = kernels_.attention;
    const CacheRun at{.page = page, .offset = place, .position = 0, .count = 1};
    memory_.store_key(kernels, at, layer, head, key);
    memory_.store_value(kernels, at, layer, head, value);
    std::vector<float> both = rounded(key, kKeyGroup, memory_.type(layer));
    const std::vector<float> rounded_value = rounded(value, value.size(), memory_.type(layer));
    both.insert(both.end(), rounded_value.begin(), rounded_value.end());
    expected_.push_back(both);
  }

  static std::vector<float> rounded(std::span<const float> x, std::size_t group, CacheType type) {
    std::vector<float> kept(x.size());
    if (type == CacheType::q8_0) {
      std::vector<std::int8_t> q(x.size());
      std::vector<Half> d(x.size() / group);
      keep_q8_0_reference(x, group, q.data(), d.data());
      for (std::size_t i = 0; i < x.size(); ++i) kept[i] = half_to_float(d[i / group]) * q[i];
    } else {
      for (std::size_t i = 0; i < x.size(); ++i) kept[i] = read_back(x[i], type);
    }
    return kept;
  }

  // The key and the value at a place, one after the other, by the layout that the header describes.
  std::vector<float> kept(int page, int layer, int head, std::size_t place) {
    const std::size_t key_dim = layers_[layer].key_dim, value_dim = layers_[layer].value_dim;
    std::vector<float> both;
    if (memory_.type(layer) == CacheType::q8_0) {
      const CacheMemory::HeadQ8 at = memory_.head_q8_0(page, layer, head);
      for (std::size_t d = 0; d < key_dim; ++d) {
        const float scale = half_to_float(at.key_scales[d / kKeyGroup * kPagePositions + place]);
        const int biased = at.keys[(d / 4 * kPagePositions + place) * 4 + d % 4];
        both.push_back(scale * static_cast<float>(biased - 128));
      }
      for (std::size_t d = 0; d < value_dim; ++d) {
        both.push_back(half_to_float(at.value_scales[place]) *
                       at.values[(place / 2 * value_dim + d) * 2 + place % 2]);
      }
    } else if (memory_.type(layer) == CacheType::f16) {
      const Half* keys = memory_.keys<Half>(page, layer, head);
      const Half* values = memory_.values<Half>(page, layer, head);
      for (std::size_t d = 0; d < key_dim; ++d)
        both.push_back(half_to_float(keys[d * kPagePositions + place]));
      for (std::size_t d = 0; d < value_dim; ++d)
        both.push_back(half_to_float(values[place * value_dim + d]));
    } else {
      const float* keys = memory_.keys<float>(page, layer, head);
      const float* values = memory_.values<float>(page, layer, head);
      for (std::size_t d = 0; d < key_dim; ++d) both.push_back(keys[d * kPagePositions + place]);
      for (std::size_t d = 0; d < value_dim; ++d) both.push_back(values[place * value_dim + d]);
    }
    return both;
  }

  const std::span<const Lengths> layers_;
  CacheMemory memory_;
  const Kernels& kernels_ = kernels(available_isas().back());
  std::mt19937 random_{1};
  std::normal_distribution<float> normal_;
  std::vector<std::vector<float>> expected_;  // [pages][layers][heads][64]
};

TEST(CacheMemory, KeepsAndCopiesHeadsOfAnyLengths) {
  // The layers of a model may differ; in q8_0 the first, third and last are kept in 8 bits.
  const Lengths layers[] = {{64, 64}, {17, 40}, {96, 32}, {64, 1}, {1, 33}, {32, 128}};
  for (const CacheType type : kTypes) {
    SCOPED_TRACE(static_cast<int>(type));
    Scene scene(layers, type);
    scene.check();
    scene.copy({.from_page = 0, .from_offset = 3, .to_page = 2, .to_offset = 10, .count = 21});
    scene.copy({.from_page = 1, .from_offset = 0, .to_page = 0, .to_offset = 0, .count = 64});
    scene.copy({.from_page = 2, .from_offset = 12, .to_page = 1, .to_offset = 63, .count = 1});
    scene.check();
  }
}

TEST(CacheMemory, PagesHoldWhatTheirHeadsNeed) {
  struct Case {
    Lengths lengths;
    std::size_t f16, f32, q8_0;  // bytes of a position and head
  };
  const Case cases[] = {
      {{64, 64}, 256, 512, 128 + 6}, {{96, 32}, 256, 512, 128 + 8},
      {{32, 96}, 256, 512, 128 + 4}, {{64, 16}, 160, 320, 160},  // as f16
      {{7, 33}, 80, 160, 80},                                    // as f16
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(::testing::Message() << c.lengths.key_dim << ", " << c.lengths.value_dim);
    const Lengths layers[] = {c.lengths, c.lengths};
    const ModelSpec spec = spec_of(layers);
    constexpr std::size_t kPlaces = 2 * kHeads * kPagePositions;
    EXPECT_EQ(CacheMemory::page_bytes(spec, CacheType::f16), kPlaces * c.f16);
    EXPECT_EQ(CacheMemory::page_bytes(spec, CacheType::f32), kPlaces * c.f32);
    EXPECT_EQ(CacheMemory::page_bytes(spec, CacheType::q8_0), kPlaces * c.q8_0);
  }
}

}  // namespace
}  // namespace outrider

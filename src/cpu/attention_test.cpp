#include "cpu/attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "base/error.h"
#include "numerics/attention.h"

namespace outrider {
namespace {

std::uint32_t bits(float value) {
  if (value != value) return 0x7fc00000u;
  return value == 0 ? 0 : std::bit_cast<std::uint32_t>(value);
}

struct Case {
  int committed;  // positions of history
  int path;       // positions in scratch after it
  int decoys;     // other scratch rows between them
  std::optional<int> window;
  std::optional<double> softcap;
  int head_dim, group;
  bool extreme = false;  // keys beyond halves, values that are NaN, now and then a key that is
};

// One layer, two kv heads; history committed in uneven chunks, so that scratch and history pages
// are used and reused.
void check(const Case& c, CacheType type, Isa isa, unsigned seed) {
  SCOPED_TRACE(
      fmt::format("committed {} path {} decoys {} window {} softcap {} head_dim {} group {} {} {}",
                  c.committed, c.path, c.decoys, c.window.value_or(0), c.softcap.value_or(0),
                  c.head_dim, c.group, name(isa), type == CacheType::f16 ? "f16" : "f32"));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Attention attention{.n_heads = 2 * c.group,
                      .n_kv_heads = 2,
                      .head_dim = c.head_dim,
                      .scale = 0.173,
                      .softcap = c.softcap,
                      .window = c.window,
                      .rope = {}};
  ModelSpec spec;
  spec.layers.push_back({{{std::nullopt, attention, std::nullopt}}});
  const CacheLimits limits{
      .context = c.committed + c.path + 1, .n_sequences = 1, .n_slots = 400, .n_layers = 1};
  Cache cache(limits);
  CacheMemory memory(spec, type, Cache::pages_needed(limits));
  const VectorKernels& kernels = outrider::kernels(isa).vectors;
  const SequenceId sequence = cache.begin();

  const auto vector = [&] {
    std::vector<float> values(c.head_dim);
    for (float& value : values) value = normal(random);
    return values;
  };
  const auto at_times = [&](int rarity) { return c.extreme && random() % rarity == 0; };
  struct Kept {
    std::vector<float> k[2], v[2];
  };
  std::vector<Kept> kept;  // of the path, by position
  const auto add = [&](std::optional<SlotId> parent, bool is_on_path) {
    const SlotId slot = cache.add_slot(sequence, parent, LayerSet(1));
    Kept both;
    for (int head = 0; head < 2; ++head) {
      both.k[head] = vector();
      both.v[head] = vector();
      if (at_times(20)) both.k[head][random() % c.head_dim] = random() % 2 ? 7e4f : -7e4f;
      if (at_times(20)) both.v[head][random() % c.head_dim] = std::nanf("");
      if (at_times(400)) both.k[head][random() % c.head_dim] = std::nanf("");
      memory.store(kernels, cache.place(sequence, slot), 0, head, both.k[head], both.v[head]);
    }
    if (is_on_path) kept.push_back(both);
    return slot;
  };
  for (int left = c.committed; left > 0;) {
    std::vector<SlotId> chain;
    for (int n = std::min<int>(left, 1 + random() % 150); n > 0; --n, --left) {
      chain.push_back(add(chain.empty() ? std::nullopt : std::optional(chain.back()), true));
    }
    memory.copy(cache.commit(sequence, chain));
  }
  std::optional<SlotId> last;
  int decoys = c.decoys;
  for (int i = 0; i < c.path; ++i) {
    while (decoys > 0 && random() % 2 == 0 && --decoys >= 0) add(last, false);
    last = add(last, true);
  }

  const RowContext row{.position = c.committed + c.path - 1,
                       .committed = cache.committed(sequence),
                       .pages = cache.pages(sequence),
                       .path = cache.path(sequence, *last)};
  AttentionScratch scratch;
  for (int kv_head = 0; kv_head < 2; ++kv_head) {
    std::vector<float> queries(c.group * c.head_dim), out(queries.size());
    for (float& q : queries) q = normal(random);
    const std::size_t group = c.group, head_dim = c.head_dim;
    attend(kernels, memory, type, attention, 0, kv_head, row, {queries.data(), group, head_dim},
           {out.data(), group, head_dim}, scratch);
    std::vector<AttentionKey> keys;
    for (std::size_t p = 0; p < kept.size(); ++p) {
      keys.push_back({static_cast<int>(p), kept[p].k[kv_head], kept[p].v[kv_head]});
    }
    const AttentionRule rule{
        .scale = static_cast<float>(attention.scale),
        .softcap = c.softcap ? std::optional(static_cast<float>(*c.softcap)) : std::nullopt,
        .window = c.window,
    };
    std::vector<float> expected(head_dim);
    for (std::size_t head = 0; head < group; ++head) {
      attention_reference(std::span(queries).subspan(head * head_dim, head_dim), row.position, keys,
                          rule, type == CacheType::f16 ? KeptAs::f16 : KeptAs::f32, expected);
      for (std::size_t d = 0; d < head_dim; ++d) {
        ASSERT_EQ(bits(out[head * head_dim + d]), bits(expected[d]))
            << "head " << head << " channel " << d;
      }
    }
  }
}

TEST(Attend, EqualsTheReference) {
  const Case cases[] = {
      {0, 1, 0, {}, {}, 64, 3},          {0, 63, 5, {}, {}, 64, 3},
      {63, 1, 0, {}, {}, 64, 1},         {64, 1, 0, {}, {}, 128, 6},
      {60, 10, 40, {}, {}, 64, 2},       {130, 70, 90, {}, {}, 32, 4},
      {1100, 3, 2, {}, {}, 64, 3},       {1000, 100, 60, {}, {}, 80, 2},
      {2100, 1, 0, {}, {}, 16, 1},       {200, 20, 9, 24, {}, 64, 2},
      {200, 20, 9, 5, {}, 64, 2},        {128, 1, 0, 1, {}, 64, 2},
      {1500, 9, 9, 1100, {}, 64, 2},     {150, 12, 7, {}, 30.0, 64, 2},
      {150, 12, 7, 70, 5.0, 256, 4},     {50, 9, 5, {}, {}, 64, 4, true},
      {130, 20, 9, 70, {}, 80, 3, true}, {1100, 3, 2, {}, {}, 64, 6, true},
  };
  for (const Isa isa : available_isas()) {
    unsigned seed = 1;
    for (const Case& c : cases) {
      for (const CacheType type : {CacheType::f16, CacheType::f32}) {
        check(c, type, isa, seed++);
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace outrider

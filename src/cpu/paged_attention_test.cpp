#include "cpu/paged_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
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

struct Shape {
  int n_kv_heads, group, key_dim;
  std::optional<int> window = {};
  std::optional<double> softcap = {};
  int value_dim = key_dim;
  int first_key = 0;
};

// Rows of a pass: how many, and how they hang together.
enum class Kind { chain, bushes, mixed };

struct Case {
  int committed;  // positions of history
  int earlier;    // rows in scratch from a pass before
  int rows;
  Kind kind;
  Shape shape;
  bool extreme = false;  // keys beyond halves, values that are NaN, now and then a key that is
  int sequences = 1;
};

// Sequences with random text, committed in uneven chunks, so that history and scratch pages are
// used and reused; then rows whose every output must be the reference's.
class Scene {
 public:
  Scene(const Case& c, CacheType type, Isa isa, unsigned seed)
      : case_(c),
        type_(type),
        kernels_(kernels(isa)),
        random_(seed),
        attention_{.n_heads = c.shape.n_kv_heads * c.shape.group,
                   .n_kv_heads = c.shape.n_kv_heads,
                   .first_key = c.shape.first_key,
                   .key_dim = c.shape.key_dim,
                   .value_dim = c.shape.value_dim,
                   .scale = 0.173,
                   .softcap = c.shape.softcap,
                   .window = c.shape.window,
                   .rope = {},
                   .query_growth = {}},
        limits_{.context = c.committed + c.earlier + c.rows + 1,
                .n_sequences = c.sequences,
                .n_slots = 400,
                .n_layers = 1},
        cache_(limits_) {
    spec_.layers.push_back({{{std::nullopt, attention_, std::nullopt}}});
    memory_.emplace(spec_, type, Cache::n_pages(limits_));
    for (int i = 0; i < c.sequences; ++i) {
      texts_.push_back({cache_.begin()});
      fill(texts_.back(), c.committed - i);
    }
  }

  void check(int n_threads) {
    std::vector<const Node*> rows;
    for (Text& text : texts_) {
      for (int i = 0; i < case_.earlier; ++i) add(text, text.scratch.size());
    }
    for (int i = 0; i < case_.rows; ++i) {
      Text& text = texts_[random_() % texts_.size()];
      const std::size_t first = text.scratch.size() - text.n_rows++;
      rows.push_back(&add(text, case_.kind == Kind::chain ? text.scratch.size()
                                : case_.kind == Kind::bushes
                                    ? first + random_() % text.n_rows
                                    : random_() % (text.scratch.size() + 1)));
    }
    // Parents come before children; otherwise rows have no order.
    std::vector<RowContext> contexts;
    std::vector<const RowContext*> pointers;
    contexts.reserve(rows.size());
    const std::size_t n_heads = attention_.n_heads;
    const std::size_t width = n_heads * attention_.key_dim;
    const std::size_t out_width = n_heads * attention_.value_dim;
    std::vector<float> queries(rows.size() * width), out(rows.size() * out_width);
    for (float& q : queries) q = normal_(random_);
    for (const Node* row : rows) {
      contexts.push_back({.position = cache_.position(row->sequence, row->slot),
                          .committed = cache_.committed(row->sequence),
                          .pages = cache_.pages(row->sequence),
                          .path = cache_.path(row->sequence, row->slot)});
      pointers.push_back(&contexts.back());
    }
    PagedAttention paged(spec_, kernels_, *memory_, n_threads);
    ThreadTeam team(n_threads);
    for (int pass = 0; pass < 2; ++pass) {  // nothing is left over from a pass
      paged.begin_pass(pointers);
      team.run([&](int thread) {
        paged.attend(attention_, 0, thread, {queries.data(), rows.size(), width},
                     {out.data(), rows.size(), out_width});
      });
    }
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (row > 8 && row + 8 < rows.size() && random_() % 4 != 0)
        continue;  // the reference is slow
      for (int head = 0; head < attention_.n_heads; ++head) {
        expect_reference(*rows[row], contexts[row].position, head,
                         std::span(queries).subspan(row * width, width),
                         std::span(out).subspan(row * out_width, out_width));
        if (::testing::Test::HasFatalFailure()) {
          ADD_FAILURE() << "row " << row << " head " << head << " threads " << n_threads;
          return;
        }
      }
    }
  }

 private:
  struct Vectors {
    std::vector<std::vector<float>> k, v;  // by kv head
  };
  struct Node {
    SequenceId sequence;
    SlotId slot;
    const Node* parent;
    Vectors own;
  };
  struct Text {
    SequenceId sequence;
    std::vector<Vectors> history = {};
    std::vector<std::unique_ptr<Node>> scratch = {};
    std::size_t n_rows = 0;
  };

  // parent: 0 is the committed end, i + 1 the slot i.
  const Node& add(Text& text, std::size_t parent) {
    const Node* above = parent == 0 ? nullptr : text.scratch[parent - 1].get();
    const SlotId slot = cache_.add_slot(
        text.sequence, 0, above ? std::optional(above->slot) : std::nullopt, LayerSet(1));
    Vectors own;
    const auto at_times = [&](unsigned rarity) { return case_.extreme && random_() % rarity == 0; };
    for (int head = 0; head < attention_.n_kv_heads; ++head) {
      for (auto* vectors : {&own.k, &own.v}) {
        const bool is_key = vectors == &own.k;
        vectors->emplace_back(is_key ? attention_.key_dim : attention_.value_dim);
        for (float& x : vectors->back()) x = normal_(random_);
      }
      const auto any = [&](std::vector<float>& x) -> float& { return x[random_() % x.size()]; };
      if (at_times(20)) any(own.k[head]) = random_() % 2 ? 7e4f : -7e4f;
      if (at_times(20)) any(own.v[head]) = std::nanf("");
      if (at_times(400)) any(own.k[head]) = std::nanf("");
      const CacheRun place = cache_.place(text.sequence, slot);
      memory_->store_key(kernels_.attention, place, 0, head, own.k[head]);
      memory_->store_value(kernels_.attention, place, 0, head, own.v[head]);
    }
    text.scratch.push_back(
        std::make_unique<Node>(Node{text.sequence, slot, above, std::move(own)}));
    return *text.scratch.back();
  }

  void fill(Text& text, int length) {
    while (length > 0) {
      std::vector<SlotId> chain;
      for (int n = std::min<int>(length, 1 + random_() % 150); n > 0; --n, --length)
        chain.push_back(add(text, text.scratch.size()).slot);
      for (const auto& node : text.scratch) text.history.push_back(node->own);
      text.scratch.clear();
      memory_->copy(cache_.commit(text.sequence, chain));
    }
  }

  void expect_reference(const Node& row, int position, int head, std::span<const float> queries,
                        std::span<const float> out) {
    const std::size_t key_dim = attention_.key_dim, value_dim = attention_.value_dim;
    const std::size_t kv_head = head / case_.shape.group;
    std::vector<AttentionKey> keys;
    for (const Text& text : texts_) {
      if (text.sequence != row.sequence) continue;
      for (std::size_t p = 0; p < text.history.size(); ++p)
        keys.push_back(
            {static_cast<int>(p), text.history[p].k[kv_head], text.history[p].v[kv_head]});
    }
    int at = position;
    for (const Node* node = &row; node != nullptr; node = node->parent)
      keys.push_back({at--, node->own.k[kv_head], node->own.v[kv_head]});
    const AttentionRule rule{.scale = static_cast<float>(attention_.scale),
                             .softcap = attention_.softcap
                                            ? std::optional(static_cast<float>(*attention_.softcap))
                                            : std::nullopt,
                             .window = attention_.window,
                             .first_key = attention_.first_key};
    std::vector<float> expected(value_dim);
    attention_reference(queries.subspan(head * key_dim, key_dim), position, keys, rule, type_,
                        expected);
    for (std::size_t d = 0; d < value_dim; ++d)
      ASSERT_EQ(bits(out[head * value_dim + d]), bits(expected[d])) << "channel " << d;
  }

  const Case case_;
  const CacheType type_;
  const Kernels& kernels_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  const Attention attention_;
  ModelSpec spec_;
  const CacheLimits limits_;
  Cache cache_;
  std::optional<CacheMemory> memory_;
  std::vector<Text> texts_;
};

TEST(PagedAttention, EqualsTheReference) {
  const Case cases[] = {
      // One row: spans and tiles are divided among threads.
      {0, 0, 1, Kind::chain, {2, 3, 64}},
      {63, 0, 1, Kind::chain, {1, 1, 64}},
      {64, 0, 1, Kind::chain, {2, 6, 128}},
      {2100, 0, 1, Kind::chain, {1, 1, 32}},
      {1100, 0, 1, Kind::chain, {3, 3, 64}},
      {2100, 0, 1, Kind::chain, {1, 2, 16, 1300}},
      // Without the first key.
      {0, 0, 1, Kind::chain, {1, 2, 32, {}, {}, 32, 1}},
      {0, 0, 150, Kind::chain, {1, 6, 32, {}, {}, 32, 1}},
      {70, 3, 9, Kind::mixed, {2, 2, 64, {}, {}, 64, 1}},
      {100, 2, 8, Kind::bushes, {2, 2, 64, 40, {}, 64, 66}},
      // Chains over several pages, aligned and not, longer than a block.
      {0, 0, 150, Kind::chain, {1, 6, 32}},
      {128, 0, 100, Kind::chain, {2, 2, 64}},
      {1000, 70, 60, Kind::chain, {1, 2, 80}},
      {130, 5, 140, Kind::chain, {1, 4, 64, 24}},
      // Trees.
      {60, 10, 20, Kind::mixed, {2, 2, 64}},
      {130, 70, 24, Kind::mixed, {1, 4, 32}},
      {200, 20, 9, Kind::bushes, {2, 2, 64, 5}},
      {128, 3, 12, Kind::bushes, {2, 2, 64, 1}},
      {1500, 9, 16, Kind::mixed, {1, 2, 64, 1100}},
      {150, 12, 7, Kind::mixed, {1, 3, 64, {}, 30.0}},
      {150, 12, 7, Kind::bushes, {2, 4, 256, 70, 5.0}},
      // Several sequences, of which some have no history.
      {70, 0, 40, Kind::mixed, {2, 2, 64}, false, 3},
      {1, 0, 20, Kind::chain, {1, 2, 64}, false, 2},
      // Keys and values that are NaN.
      {50, 9, 9, Kind::mixed, {1, 4, 64}, true},
      {130, 20, 20, Kind::bushes, {2, 3, 80, 70}, true},
      {1100, 3, 70, Kind::chain, {1, 2, 64}, true},
      // Keys and values of different lengths; in q8_0, the first four stay in 8 bits.
      {1100, 0, 1, Kind::chain, {2, 3, 192, {}, {}, 128}},
      {130, 70, 24, Kind::mixed, {1, 4, 32, {}, {}, 96}},
      {2100, 0, 1, Kind::chain, {1, 1, 32, {}, {}, 256}},
      {130, 20, 20, Kind::bushes, {2, 3, 96, 70, {}, 32}, true},
      {1000, 70, 60, Kind::chain, {1, 2, 64, {}, {}, 80}},
      {150, 12, 7, Kind::bushes, {2, 4, 17, 70, 5.0, 33}},
      {130, 5, 140, Kind::chain, {3, 2, 33, 24, {}, 1}},
      {70, 9, 40, Kind::mixed, {2, 2, 1, {}, {}, 40}, true, 3},
  };
  for (const Isa isa : available_isas()) {
    unsigned seed = 1;
    for (const Case& c : cases) {
      for (const CacheType type : {CacheType::f16, CacheType::f32, CacheType::q8_0}) {
        SCOPED_TRACE(fmt::format(
            "{} cache {} committed {} earlier {} rows {} kind {} kv heads {} group {} key_dim {} "
            "value_dim {}",
            name(isa), static_cast<int>(type), c.committed, c.earlier, c.rows,
            static_cast<int>(c.kind), c.shape.n_kv_heads, c.shape.group, c.shape.key_dim,
            c.shape.value_dim));
        // Each type meets all numbers of threads.
        Scene(c, type, isa, seed).check(1 + static_cast<int>((seed + seed / 3) % 3));
        ++seed;
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace outrider

#include "cpu/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace outrider {
namespace {

ModelSpec spec_of(const Attention& attention) {
  ModelSpec spec;
  spec.layers.push_back({{{std::nullopt, attention, std::nullopt}}});
  return spec;
}

// A chain of rows after `committed` positions.
std::vector<RowContext> chain_of(int rows, int committed, std::span<const int> pages) {
  std::vector<RowContext> contexts;
  for (int i = 0; i < rows; ++i) {
    const CacheRun own{.page = 99, .offset = 0, .position = committed, .count = i + 1};
    contexts.push_back(
        {.position = committed + i, .committed = committed, .pages = pages, .path = {own}});
  }
  return contexts;
}

// Every row meets every tile up to its own once for each kv head, for any number of threads; and
// the division is nearly even even with few kv heads and a short context.
TEST(AttentionPlan, PartsCoverAllTilesEvenly) {
  const std::vector<int> pages(64);
  for (const int n_kv_heads : {1, 2, 3, 8}) {
    for (const int n_parts : {1, 2, 4}) {
      for (const int committed : {0, 60, 64, 1000}) {
        for (const int rows : {1, 2, 8, 40}) {
          SCOPED_TRACE(testing::Message() << n_kv_heads << " kv heads, " << n_parts << " parts, "
                                          << committed << " committed, " << rows << " rows");
          Attention attention;
          attention.n_heads = 4 * n_kv_heads;
          attention.n_kv_heads = n_kv_heads;
          AttentionPlan plan(spec_of(attention), n_parts);
          const std::vector<RowContext> contexts = chain_of(rows, committed, pages);
          std::vector<const RowContext*> pointers;
          for (const RowContext& context : contexts) pointers.push_back(&context);
          plan.begin_pass(pointers);
          const AttentionPlan::Work& work = plan.work(0);

          std::map<std::tuple<std::size_t, int, std::size_t>, int> met;  // row, kv head, tile
          std::size_t most = 0;
          for (int part = 0; part < n_parts; ++part) {
            std::size_t cost = 0;
            for (const AttentionPlan::Item& item : work.items) {
              const Range tiles = plan.share_of(work, item, part);
              EXPECT_LE(tiles.end - tiles.begin, plan.most_tiles(work, item));
              cost += (tiles.end - tiles.begin) * item.tile_cost();
              for (std::size_t place = item.block->rows.begin; place < item.block->rows.end;
                   ++place) {
                for (std::size_t tile = tiles.begin; tile < tiles.end; ++tile)
                  ++met[{plan.row(place), item.kv_head, tile}];
              }
            }
            most = std::max(most, cost);
          }
          for (int row = 0; row < rows; ++row) {
            for (int kv_head = 0; kv_head < n_kv_heads; ++kv_head) {
              for (int tile = 0; tile <= tile_of(committed + row); ++tile)
                EXPECT_EQ((met[{row, kv_head, tile}]), 1);
            }
          }
          for (const auto& [place, times] : met) EXPECT_EQ(times, 1);
          if (rows >= 8) {
            EXPECT_LE(most * n_parts, work.cost * 1.34);
          }
        }
      }
    }
  }
}

// Working memory is measured once for all layers that share their work.
TEST(AttentionPlan, LayersThatNeedOtherMemoryHaveWorkOfTheirOwn) {
  Attention first;
  first.n_heads = 4;
  first.n_kv_heads = 2;
  first.key_dim = first.value_dim = 64;
  std::vector<Attention> layers(7, first);
  layers[1].n_heads = 8;
  layers[2].n_kv_heads = 1;
  layers[3].key_dim = 32;
  layers[4].value_dim = 32;
  layers[5].window = 100;
  layers[6].scale = 2;  // needs nothing else
  ModelSpec spec;
  for (const Attention& attention : layers)
    spec.layers.push_back({{{std::nullopt, attention, std::nullopt}}});
  const AttentionPlan plan(spec, 1);
  ASSERT_EQ(plan.works().size(), 6u);
  for (int layer = 0; layer < 6; ++layer) EXPECT_EQ(plan.work(layer).first_layer, layer);
  EXPECT_EQ(plan.work(6).first_layer, 0);
}

}  // namespace
}  // namespace outrider

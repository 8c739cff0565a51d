// Attention over tiles of 64 keys of one kv head, for the queries of 1, 8 and 64 rows that share
// it: six queries per row of 128 channels, as in Qwen2.5 1.5B. An iteration is a few tiles per
// thread, and the next iteration takes the next of many.

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "base/huge_buffer.h"
#include "cpu/kernels/kernels.h"
#include "kernels.h"

namespace outrider {
namespace {

constexpr std::size_t kChannels = 128, kQueriesARow = 6, kTiles = 32;
constexpr std::size_t kRows[] = {1, 8, 64};
constexpr std::size_t kTileElements = kTile * kChannels;

// Keys or values, the same number of tiles for each thread, one tile after the other; and each
// thread's queries and results.
struct Tiles {
  Tiles(const KernelBench& bench, std::size_t n_queries, std::size_t element_bytes)
      : tile_bytes(kTileElements * element_bytes),
        count(std::max(2 * kTiles, bench.stream_bytes / tile_bytes /
                                       static_cast<std::size_t>(bench.team.size()))),
        memory(tile_bytes * count * static_cast<std::size_t>(bench.team.size())),
        queries(n_queries) {
    bench.team.run([&](int thread) {
      Half* own = halves(thread, 0);
      // 1 in halves; as int8 all of one size, which does not matter for time.
      std::fill(own, own + count * tile_bytes / sizeof(Half), Half{0x3c00});
    });
    std::minstd_rand rng;
    std::normal_distribution<float> normal;
    for (int thread = 0; thread < bench.team.size(); ++thread) {
      Own own{std::vector<float>(queries * kChannels),
              std::vector<float>(queries * kTile, 1.0f / kTile),
              std::vector<float>(queries * kChannels),
              std::vector<std::int8_t>(queries * kChannels, 3),
              std::vector<float>(queries * kChannels / 32, 1),
              std::vector<std::int32_t>(queries * kChannels / 32, -128 * 96),
              std::vector<std::int16_t>(queries * kTile, 200),
              std::vector<std::int32_t>(queries * kChannels),
              std::vector<Half>(kTile * kChannels, 0x3c00),
              std::vector<float>(queries),
              std::vector<float>(queries)};
      for (float& x : own.q) x = normal(rng);
      each.push_back(std::move(own));
    }
  }

  std::byte* tile(int thread, std::size_t index) {
    return memory.begin() +
           (static_cast<std::size_t>(thread) * count + index % (count - 1)) * tile_bytes;
  }
  Half* halves(int thread, std::size_t index) {
    return reinterpret_cast<Half*>(tile(thread, index));
  }

  struct Own {
    std::vector<float> q, p, out;
    std::vector<std::int8_t> q8;
    std::vector<float> d;
    std::vector<std::int32_t> bias;
    std::vector<std::int16_t> weights;
    std::vector<std::int32_t> sums;
    std::vector<Half> scales;
    std::vector<float> max, sum;
  };
  std::size_t tile_bytes, count;
  HugeBuffer memory;
  std::size_t queries;
  std::vector<Own> each;  // [threads]
};

}  // namespace

void add_attention(const KernelBench& bench) {
  static constexpr Places kAll = {0, kTile};
  for (const Isa isa : available_isas()) {
    if (isa == Isa::reference) continue;
    const AttentionKernels& k = kernels(isa).attention;
    for (const std::size_t rows : kRows) {
      const std::size_t n = rows * kQueriesARow;
      // call(tiles, own, thread, index) works on one tile.
      const auto add = [&](std::string_view what, std::size_t element_bytes, double tera,
                           auto call) {
        const double tiles = static_cast<double>(kTiles) * bench.team.size();
        const double elements = static_cast<double>(kTileElements);
        const Work work = {
            .bytes = tiles * elements * static_cast<double>(element_bytes),
            .operations = tera > 0 ? tiles * 2 * elements * static_cast<double>(n) : 0,
            .tera = tera};
        add_kernel(bench, fmt::format("attention/{}/{}/rows:{}", what, name(isa), rows), work,
                   [&bench, n, element_bytes, call]() -> KernelBody {
                     const auto tiles = std::make_shared<Tiles>(bench, n, element_bytes);
                     return [tiles, call](int thread, std::size_t iteration) {
                       Tiles::Own& own = tiles->each[static_cast<std::size_t>(thread)];
                       for (std::size_t i = 0; i < kTiles; ++i)
                         call(*tiles, own, thread, iteration * kTiles + i);
                     };
                   });
      };
      const auto scores = [n](Tiles::Own& own) {
        return MatrixView<float>(own.p.data(), n, kTile);
      };
      const auto out = [n](Tiles::Own& own) {
        return MatrixView<float>(own.out.data(), n, kChannels);
      };
      // Attention does not use the tiles of AMX.
      const double f32 = bench.limits.f32_tflops;
      const double int8 = bench.int8_tops(std::min(isa, Isa::avx512));
      add("scores_f16", sizeof(Half), f32,
          [&k, n, scores](Tiles& tiles, Tiles::Own& own, int thread, std::size_t index) {
            k.scores_f16({own.q.data(), n, kChannels}, tiles.halves(thread, index), kAll,
                         tiles.halves(thread, index + 1), scores(own));
          });
      add("values_f16", sizeof(Half), f32,
          [&k, n, out](Tiles& tiles, Tiles::Own& own, int thread, std::size_t index) {
            k.values_f16({own.p.data(), n, kTile}, tiles.halves(thread, index), kTile,
                         tiles.halves(thread, index + 1), nullptr, out(own));
          });
      add("scores_q8_0", 1, int8,
          [&k, n, scores](Tiles& tiles, Tiles::Own& own, int thread, std::size_t index) {
            const auto at = [&](std::size_t i) {
              return KeysQ8{reinterpret_cast<const std::uint8_t*>(tiles.tile(thread, i)),
                            own.scales.data()};
            };
            const KeysQ8 next = at(index + 1);
            k.scores_q8_0({{own.q8.data(), n, kChannels},
                           {own.d.data(), n, kChannels / 32},
                           {own.bias.data(), n, kChannels / 32}},
                          at(index), kAll, &next, scores(own));
          });
      // Weights have 14 bits, so an instruction of VNNI has half as many products as with int8.
      add("values_q8_0", 1, int8 / 2,
          [&k, n](Tiles& tiles, Tiles::Own& own, int thread, std::size_t index) {
            k.values_q8_0({own.weights.data(), n, kTile},
                          reinterpret_cast<const std::int8_t*>(tiles.tile(thread, index)), kAll,
                          {own.sums.data(), n, kChannels});
          });
    }
  }
}

}  // namespace outrider

// Products with AMX: tile_products.h on the processor's tiles, AVX-512 where that is faster.

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/x86/tables.h"
#include "cpu/kernels/x86/tile_products.h"
#include "cpu/kernels/x86/tiles.h"

namespace outrider {
namespace {

// With fewer rows AVX-512's kernels are faster: T(8) of the 1.5B takes 45 ms with them and 55 with
// tiles, T(12) 69 and 62 (docs/experiments/products-amx.md).
constexpr std::size_t kLeastRows = 9;

bool on_tiles(const PackedMatrix& weights, Range rows) {
  return input_kind(weights.type) != InputKind::floats && rows.end - rows.begin >= kLeastRows;
}

std::size_t lines(const PackedMatrix& weights, std::size_t n_rows) {
  if (!on_tiles(weights, {0, n_rows})) return kProductsAvx512[0].lines(weights, n_rows);
  return std::max(tiled::lines(weights, n_rows), kProductsAvx512[0].lines(weights, kLeastRows - 1));
}

template <PrefetchPattern kPrefetch>
void arrange(const PackedMatrix& weights, const ProductInput& input, Range rows,
             ArrangedRows& arranged) {
  if (on_tiles(weights, rows))
    tiled::arrange(weights, input, rows, arranged);
  else
    kProductsAvx512[index(kPrefetch)].arrange(weights, input, rows, arranged);
}

void product(const PackedMatrix& weights, const ArrangedRows& rows, Range panels,
             MatrixView<float> out) {
  if (on_tiles(weights, rows.rows))
    tiled::product<HardwareTiles>(weights, rows, panels, out);
  else
    kProductsAvx512[0].product(weights, rows, panels, out);
}

void quantize(std::span<const float> x, std::size_t group, QuantizedRow out) {
  kProductsAvx512[0].quantize(x, group, out);
}

}  // namespace

const std::array<ProductKernels, kPrefetchPatterns.size()> kProductsAmx = {{
    {lines, arrange<PrefetchPattern::processor>, product, quantize},
    {lines, arrange<PrefetchPattern::near>, product, quantize},
    {lines, arrange<PrefetchPattern::far>, product, quantize},
}};

}  // namespace outrider

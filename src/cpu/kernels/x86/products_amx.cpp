// Products with AMX: tile_products.h on the processor's tiles, AVX-512 where that is faster.

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/x86/tables.h"
#include "cpu/kernels/x86/tile_products.h"
#include "cpu/kernels/x86/tiles.h"

namespace outrider {
namespace {

// With fewer rows AVX-512's kernels take fewer cycles: by port, tiles cost 228 + 6 a row for a
// block of Q4_K, AVX-512 68 + 45 a row (counted, not measured).
constexpr std::size_t kLeastRows = 5;

bool on_tiles(const PackedMatrix& weights, Range rows) {
  return input_kind(weights.type) != InputKind::floats && rows.end - rows.begin >= kLeastRows;
}

std::size_t lines(const PackedMatrix& weights, std::size_t n_rows) {
  if (!on_tiles(weights, {0, n_rows})) return kProductsAvx512.lines(weights, n_rows);
  return std::max(tiled::lines(weights, n_rows), kProductsAvx512.lines(weights, kLeastRows - 1));
}

template <const ProductKernels& kOfFewRows>
void arrange(const PackedMatrix& weights, const ProductInput& input, Range rows,
             ArrangedRows& arranged) {
  if (on_tiles(weights, rows))
    tiled::arrange(weights, input, rows, arranged);
  else
    kOfFewRows.arrange(weights, input, rows, arranged);
}

void product(const PackedMatrix& weights, const ArrangedRows& rows, Range panels,
             MatrixView<float> out) {
  if (on_tiles(weights, rows.rows))
    tiled::product<HardwareTiles>(weights, rows, panels, out);
  else
    kProductsAvx512.product(weights, rows, panels, out);
}

void quantize(std::span<const float> x, std::size_t group, QuantizedRow out) {
  kProductsAvx512.quantize(x, group, out);
}

}  // namespace

const ProductKernels kProductsAmx = {lines, arrange<kProductsAvx512>, product, quantize};
const ProductKernels kProductsAmxRequests = {lines, arrange<kProductsAvx512Requests>, product,
                                             quantize};

}  // namespace outrider

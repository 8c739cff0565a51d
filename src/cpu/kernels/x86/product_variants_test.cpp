#include "cpu/kernels/product_variants_test.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cpu/kernels/x86/tables.h"
#include "cpu/kernels/x86/tile_products.h"
#include "cpu/kernels/x86/tiles_emulator_test.h"
#include "cpu/kernels/x86/tiles_software_test.h"

namespace outrider {
namespace {

// AMX's kernels on tiles of another kind, for any number of rows. Unpacking needs AVX-512.
std::size_t lines_for_tiles(const PackedMatrix& weights, std::size_t n_rows) {
  const bool is_float = input_kind(weights.type) == InputKind::floats;
  return is_float ? 0 : tiled::lines(weights, n_rows);
}

void arrange_for_tiles(const PackedMatrix& weights, const ProductInput& input, Range rows,
                       ArrangedRows& arranged) {
  const bool is_float = input_kind(weights.type) == InputKind::floats;
  (is_float ? kProductsReference.arrange : tiled::arrange)(weights, input, rows, arranged);
}

template <typename Tiles>
void product_on_tiles(const PackedMatrix& weights, const ArrangedRows& rows, Range panels,
                      MatrixView<float> out) {
  if (input_kind(weights.type) == InputKind::floats) {
    kProductsReference.product(weights, rows, panels, out);
  } else {
    tiled::product<Tiles>(weights, rows, panels, out);
  }
}

// On the instructions themselves, where the processor does not know them.
void product_on_emulated_tiles(const PackedMatrix& weights, const ArrangedRows& rows, Range panels,
                               MatrixView<float> out) {
  const TileEmulator emulator;
  product_on_tiles<HardwareTiles>(weights, rows, panels, out);
}

// EVEX is tested wherever there is AVX-512: it differs from VEX in the encoding alone.
TEST(Products, VexEncodingOfVnni) {
  if (!is_available(Isa::avxvnni) || vnni_encoding() != VnniEncoding::vex) {
    GTEST_SKIP() << "no AVX-VNNI in VEX encoding";
  }
  // So all tests of products_test.cpp run it.
  EXPECT_EQ(kernels(Isa::avxvnni).products.arrange, kProductsAvxVnniVex.arrange);
}

}  // namespace

std::vector<ProductVariant> variants_without_table() {
  std::vector<ProductVariant> all;
  if (!is_available(Isa::avx512)) return all;
  for (const Isa isa : available_isas()) {
    if (kernels(isa).by_prefetch.empty()) continue;
    for (const PrefetchPattern prefetch : {PrefetchPattern::near, PrefetchPattern::far})
      all.push_back({fmt::format("{}, {} requests", name(isa), name(prefetch)),
                     kernels(isa).products_by(prefetch)});
  }
  // The table has one encoding of AVX-VNNI, VEX where there are both.
  if (vnni_encoding() == VnniEncoding::vex) {
    all.push_back({"avxvnni, EVEX", kProductsAvxVnniEvex});
  }
  all.push_back(
      {"tiles in plain code",
       {lines_for_tiles, arrange_for_tiles, product_on_tiles<SoftwareTiles>, quantize_reference}});
  if (!is_available(Isa::amx)) {
    all.push_back(
        {"emulated tiles",
         {lines_for_tiles, arrange_for_tiles, product_on_emulated_tiles, quantize_reference}});
  }
  return all;
}

}  // namespace outrider

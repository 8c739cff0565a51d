#include "cpu/product_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace outrider {
namespace {

// Whole panels take four heads of 100 channels, or two of 8; three heads are no multiple of either.
TEST(HeadPieces, CoverHeadsAndPanelsOnce) {
  constexpr std::size_t kDims[] = {1, 8, 16, 64, 80, 100};
  for (const std::size_t key_dim : kDims) {
    for (const std::size_t value_dim : kDims) {
      for (const auto [n_heads, n_kv_heads] :
           {std::array<std::size_t, 2>{1, 1}, {3, 1}, {3, 3}, {12, 1}, {12, 2}, {12, 3}}) {
        Attention attention;
        attention.n_heads = static_cast<int>(n_heads);
        attention.n_kv_heads = static_cast<int>(n_kv_heads);
        attention.key_dim = static_cast<int>(key_dim);
        attention.value_dim = static_cast<int>(value_dim);
        const HeadPieces pieces(attention);
        const std::array head_dims{key_dim, key_dim, value_dim};
        std::array<std::size_t, 3> heads{}, panels{};
        for (std::size_t i = 0; i < pieces.size(); ++i) {
          const HeadPieces::Piece piece = pieces[i];
          const auto kind = static_cast<std::size_t>(piece.kind);
          EXPECT_EQ(piece.heads.begin, heads[kind]);
          EXPECT_LT(piece.heads.begin, piece.heads.end);
          EXPECT_EQ(piece.panels.begin, panels[kind]);
          EXPECT_EQ(piece.panels.begin * kPanel, piece.heads.begin * piece.head_dim);
          EXPECT_GE(piece.panels.end * kPanel, piece.heads.end * piece.head_dim);
          EXPECT_EQ(piece.head_dim, head_dims[kind]);
          heads[kind] = piece.heads.end;
          panels[kind] = piece.panels.end;
        }
        EXPECT_EQ(heads, (std::array{n_heads, n_kv_heads, n_kv_heads}));
        for (std::size_t kind = 0; kind < 3; ++kind)
          EXPECT_EQ(panels[kind], (heads[kind] * head_dims[kind] + kPanel - 1) / kPanel);
      }
    }
  }
}

TEST(Pieces, AreAtLeastAPanel) {
  for (const std::size_t columns : {32u, 1536u, 1000000u}) {
    PackedMatrix weights = {.type = TensorType::q8_0, .outputs = 1600, .columns = columns};
    weights.panel_bytes = packed_panel_bytes(weights.type, columns);
    const std::size_t panels = panels_per_piece(weights);
    EXPECT_GE(panels, 1u);
    EXPECT_TRUE(panels == 1 || panels * weights.panel_bytes <= 128 << 10);
    EXPECT_GT((panels + 1) * weights.panel_bytes, 128u << 10);
  }
}

// A chunk of a pass's rows has no more rows than the pass.
TEST(Pieces, OfGateAndUpFitTheMemoryOfAThread) {
  EXPECT_GT(parts_per_piece(1), parts_per_piece(512));
  for (std::size_t n_rows = 1; n_rows <= 2048; ++n_rows) {
    const std::size_t columns = parts_per_piece(n_rows) * kPanelsPerPart * kPanel;
    EXPECT_LE(n_rows * columns, piece_outputs_max(n_rows));
    EXPECT_LE(n_rows / 2 * columns, piece_outputs_max(std::max<std::size_t>(16, n_rows / 2)));
  }
}

TEST(Chunks, AreWholeGrains) {
  for (const TensorType type : {TensorType::q4_k, TensorType::f16}) {
    for (const std::size_t columns : {256u, 1536u, 8960u, 1000192u}) {
      const PackedMatrix weights = {.type = type, .columns = columns};
      const std::size_t rows = rows_per_chunk(weights);
      EXPECT_GE(rows, kChunkGrain);
      EXPECT_EQ(rows % kChunkGrain, 0u);
      const std::size_t row_bytes = type == TensorType::f16 ? 4 * columns : columns;
      EXPECT_TRUE(rows == kChunkGrain || rows * row_bytes <= kChunkBytes);
      EXPECT_EQ(n_chunks(1, weights), 1u);
      EXPECT_EQ(n_chunks(rows, weights), 1u);
      EXPECT_EQ(n_chunks(rows + 1, weights), 2u);
    }
  }
}

}  // namespace
}  // namespace outrider

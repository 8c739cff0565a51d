#include "cpu/product_pieces.h"

#include <algorithm>
#include <numeric>

namespace outrider {
namespace {

std::size_t divide_up(std::size_t n, std::size_t by) {
  return (n + by - 1) / by;
}

}  // namespace

std::size_t rows_per_chunk(const PackedMatrix& weights) {
  // As products read them: floats, or bytes and what each group has besides.
  const bool floats = input_kind(weights.type) == InputKind::floats;
  const std::size_t row_bytes = floats ? weights.columns * 4 : weights.columns * 9 / 8;
  return std::max(kChunkGrain, kChunkBytes / row_bytes / kChunkGrain * kChunkGrain);
}

std::size_t n_chunks(std::size_t n_rows, const PackedMatrix& weights) {
  return divide_up(n_rows, rows_per_chunk(weights));
}

std::size_t panels_per_piece(const PackedMatrix& weights) {
  constexpr std::size_t kPieceBytes = 128 << 10;
  return std::max<std::size_t>(1, kPieceBytes / weights.panel_bytes);
}

HeadPieces::Heads HeadPieces::heads_of(std::size_t n, std::size_t head_dim) {
  const std::size_t per_piece = kPanel / std::gcd(head_dim, kPanel);
  return {n, head_dim, per_piece, divide_up(n, per_piece)};
}

HeadPieces::HeadPieces(const Attention& attention)
    : heads_{heads_of(attention.n_heads, attention.key_dim),
             heads_of(attention.n_kv_heads, attention.key_dim),
             heads_of(attention.n_kv_heads, attention.value_dim)},
      size_(heads_[0].pieces + heads_[1].pieces + heads_[2].pieces) {}

HeadPieces::Piece HeadPieces::operator[](std::size_t index) const {
  std::size_t kind = 0;
  while (index >= heads_[kind].pieces) index -= heads_[kind++].pieces;
  const Heads& of = heads_[kind];
  const Range heads = {index * of.per_piece, std::min((index + 1) * of.per_piece, of.n)};
  const Range panels = {heads.begin * of.head_dim / kPanel,
                        divide_up(heads.end * of.head_dim, kPanel)};
  return {static_cast<Kind>(kind), heads, panels, of.head_dim};
}

}  // namespace outrider

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

HeadPieces::HeadPieces(std::size_t n_heads, std::size_t n_kv_heads, std::size_t head_dim)
    : n_heads_(n_heads),
      n_kv_heads_(n_kv_heads),
      head_dim_(head_dim),
      heads_per_piece_(kPanel / std::gcd(head_dim, kPanel)),
      q_pieces_(divide_up(n_heads, heads_per_piece_)),
      kv_pieces_(divide_up(n_kv_heads, heads_per_piece_)) {}

HeadPieces::Piece HeadPieces::operator[](std::size_t index) const {
  const auto piece = [&](Kind kind, std::size_t at, std::size_t n) -> Piece {
    const Range heads = {at * heads_per_piece_, std::min((at + 1) * heads_per_piece_, n)};
    return {
        kind, heads, {heads.begin * head_dim_ / kPanel, divide_up(heads.end * head_dim_, kPanel)}};
  };
  if (index < q_pieces_) return piece(Kind::query, index, n_heads_);
  index -= q_pieces_;
  if (index < kv_pieces_) return piece(Kind::key, index, n_kv_heads_);
  return piece(Kind::value, index - kv_pieces_, n_kv_heads_);
}

}  // namespace outrider

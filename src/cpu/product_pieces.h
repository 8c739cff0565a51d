// How the products of a pass are cut into pieces, which threads take one after another.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/threads.h"
#include "cpu/pack.h"
#include "model/spec.h"

namespace outrider {

// Rows are multiplied in chunks that stay in the second-level cache while panels pass. The sizes of
// chunks are multiples of the grain: whole tiles of AMX, and whole groups of other kernels.
inline constexpr std::size_t kChunkGrain = 16;
inline constexpr std::size_t kChunkBytes = 512 << 10;
std::size_t rows_per_chunk(const PackedMatrix& weights);
std::size_t n_chunks(std::size_t n_rows, const PackedMatrix& weights);

// At most so many panels are a piece: some 128 KiB.
std::size_t panels_per_piece(const PackedMatrix& weights);

// Gate and up are cut into parts. A piece is some parts of gate and the same parts of up, which are
// activated before the next piece. Few rows wait for memory, which long pieces keep busier: T(1) of
// a 1.5B model takes 0.97 of the time with pieces of 4 parts. Pieces of many rows are short, so
// that their outputs stay in the second-level cache.
inline constexpr std::size_t kPanelsPerPart = 4, kPartsMin = 4, kPartsMax = 16;
inline constexpr std::size_t kPartsTimesRows = 64;  // between these two
constexpr std::size_t parts_per_piece(std::size_t n_rows) {
  return std::clamp(kPartsTimesRows / n_rows, kPartsMin, kPartsMax);
}
// Outputs of `up` in a piece, of all rows together.
constexpr std::size_t piece_outputs_max(std::size_t n_rows) {
  return std::max(kPartsTimesRows, kPartsMin * n_rows) * kPanelsPerPart * kPanel;
}

// The pieces of the products with q, k and v: some heads of queries, of keys or of values. A piece
// has as few heads as make whole panels of outputs, so that the thread that multiplies them can
// finish them, too.
class HeadPieces {
 public:
  explicit HeadPieces(const Attention& attention);

  enum class Kind { query, key, value };
  struct Piece {
    Kind kind;
    Range heads, panels;   // of its kind
    std::size_t head_dim;  // of its kind: key_dim or value_dim
  };
  std::size_t size() const { return size_; }
  Piece operator[](std::size_t index) const;
  // Queries come first, then keys, then values.
  std::size_t first_key() const { return heads_[0].pieces; }

 private:
  struct Heads {
    std::size_t n, head_dim, per_piece, pieces;
  };
  static Heads heads_of(std::size_t n, std::size_t head_dim);

  std::array<Heads, 3> heads_;  // by kind
  std::size_t size_;
};

}  // namespace outrider

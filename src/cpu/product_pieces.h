// How the products of a pass are cut into pieces, which threads take one by one.

#pragma once

#include <cstddef>

#include "base/threads.h"
#include "cpu/pack.h"

namespace outrider {

// Rows go in chunks of this grain, whole tiles of AMX and whole groups of other kernels, so many
// that a chunk stays in the second-level cache while panels pass.
inline constexpr std::size_t kChunkGrain = 16;
inline constexpr std::size_t kChunkBytes = 512 << 10;
std::size_t rows_a_chunk(const PackedMatrix& weights);
std::size_t n_chunks(std::size_t n_rows, const PackedMatrix& weights);

// Panels that a thread takes at once, at most: some 128 KiB of them.
std::size_t panels_a_piece(const PackedMatrix& weights);

// Outputs of gate and up are taken in parts of some panels, at most as many parts at once as have
// the columns that are quantized together: what is multiplied is activated before the next is.
inline constexpr std::size_t kPanelsAPart = 4, kMostParts = 4;

// Heads of queries, then of keys, then of values, as few together as have whole panels for outputs,
// so that whoever multiplies them also finishes them.
class HeadPieces {
 public:
  HeadPieces(std::size_t n_heads, std::size_t n_kv_heads, std::size_t head_dim);

  enum class Kind { query, key, value };
  struct Piece {
    Kind kind;
    Range heads, panels;  // of its kind's heads and matrix
  };
  std::size_t size() const { return q_pieces_ + 2 * kv_pieces_; }
  Piece operator[](std::size_t index) const;

 private:
  std::size_t n_heads_, n_kv_heads_, head_dim_;
  std::size_t heads_a_piece_, q_pieces_, kv_pieces_;
};

}  // namespace outrider

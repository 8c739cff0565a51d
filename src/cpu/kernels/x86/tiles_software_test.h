// AMX's tiles in plain code, with the bits that the instructions give.

#pragma once

#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "cpu/kernels/x86/tiles.h"

namespace outrider {

// Shapes that the processor would refuse are mistakes of ours, and abort.
class SoftwareTiles {
 public:
  explicit SoftwareTiles(const TileConfig& config) {
    CHECK(config.palette == 1 && config.start_row == 0);
    for (int tile = 0; tile < 16; ++tile) {
      const int rows = config.rows[tile], bytes = config.row_bytes[tile];
      CHECK(tile < 8 ? rows <= kTileRows && bytes <= kTileBytes && (rows == 0) == (bytes == 0)
                     : rows == 0 && bytes == 0);
      if (tile < 8) tiles_[tile] = {rows, bytes, {}};
    }
  }

  template <int kTile>
  void zero() {
    zero(kTile);
  }
  template <int kTile>
  void load(const void* rows, std::size_t stride) {
    load(kTile, rows, stride);
  }
  template <int kTile>
  void store(void* rows, std::size_t stride) {
    store(kTile, rows, stride);
  }
  template <int kSum, int kA, int kB>
  void multiply_by_signed() {
    multiply<std::int8_t>(kSum, kA, kB);
  }
  template <int kSum, int kA, int kB>
  void multiply_by_unsigned() {
    multiply<std::uint8_t>(kSum, kA, kB);
  }

  void zero(int tile) { std::memset(shaped(tile).bytes, 0, sizeof tiles_[tile].bytes); }

  void load(int tile, const void* rows, std::size_t stride) {
    zero(tile);
    Tile& to = shaped(tile);
    for (int r = 0; r < to.rows; ++r) {
      std::memcpy(to.bytes[r], static_cast<const char*>(rows) + r * stride, to.row_bytes);
    }
  }

  void store(int tile, void* rows, std::size_t stride) {
    const Tile& from = shaped(tile);
    for (int r = 0; r < from.rows; ++r) {
      std::memcpy(static_cast<char*>(rows) + r * stride, from.bytes[r], from.row_bytes);
    }
  }

  // Weight: what the bytes of b are, int8 or uint8.
  template <typename Weight>
  void multiply(int sum, int a, int b) {
    CHECK(sum != a && sum != b && a != b);
    Tile& to = shaped(sum);
    const Tile &left = shaped(a), &right = shaped(b);
    CHECK(to.rows == left.rows && to.row_bytes == right.row_bytes);
    CHECK(left.row_bytes == 4 * right.rows && right.row_bytes % 4 == 0);
    for (int r = 0; r < to.rows; ++r) {
      std::int32_t sums[kTileBytes / 4];
      std::memcpy(sums, to.bytes[r], sizeof sums);
      for (int i = 0; i < right.rows; ++i) {
        for (int o = 0; o < right.row_bytes / 4; ++o) {
          std::int32_t four = 0;
          for (int j = 0; j < 4; ++j) {
            const auto x = static_cast<std::int8_t>(left.bytes[r][4 * i + j]);
            four += x * static_cast<Weight>(right.bytes[i][4 * o + j]);
          }
          // Sums wrap around.
          sums[o] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[o]) +
                                              static_cast<std::uint32_t>(four));
        }
      }
      std::memcpy(to.bytes[r], sums, sizeof sums);
    }
  }

 private:
  struct Tile {
    int rows = 0, row_bytes = 0;
    std::uint8_t bytes[kTileRows][kTileBytes] = {};
  };

  Tile& shaped(int tile) {
    CHECK(tiles_[tile].rows > 0);
    return tiles_[tile];
  }

  Tile tiles_[8];
};

}  // namespace outrider

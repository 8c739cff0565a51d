// The matrix unit of AMX: eight tiles of up to 16 rows of up to 64 bytes, and products of them in
// int32. Kernels are templates over a type like HardwareTiles; tiles_software_test.h has one in
// plain code, which holds the kernels' logic to the reference on machines without AMX.
//
// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18.

#pragma once

#include <cstddef>
#include <cstdint>

namespace outrider {

inline constexpr int kTileRows = 16;
inline constexpr int kTileBytes = 64;  // of a row

// What LDTILECFG reads. Tiles beyond those used stay empty.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  void shape(int tile, int n_rows, int n_bytes) {
    rows[tile] = static_cast<std::uint8_t>(n_rows);
    row_bytes[tile] = static_cast<std::uint16_t>(n_bytes);
  }
};
static_assert(sizeof(TileConfig) == 64);

// The tiles of the thread that calls. Assembly, so that no file needs a target of its own; the
// clobbers keep it in the order of the loads and stores around it.
class HardwareTiles {
 public:
  // Shapes the tiles for as long as this lives, which is one product: some hundred cycles, of the
  // hundred thousands that a product takes. Then they are released, for a thread that holds tiles
  // takes 8 KiB more to switch, and its core does not reach deep sleep.
  explicit HardwareTiles(const TileConfig& config) {
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  }
  ~HardwareTiles() { asm volatile("tilerelease" ::: "memory"); }
  HardwareTiles(const HardwareTiles&) = delete;
  HardwareTiles& operator=(const HardwareTiles&) = delete;

  template <int kTile>
  void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile) : "memory");
  }
  // Rows `stride` bytes apart.
  template <int kTile>
  void load(const void* rows, std::size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  void store(void* rows, std::size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(stride), "i"(kTile) : "memory");
  }
  // sum[r][o] += a[r][4 i + j] * b[i][4 o + j] over all i and j < 4, in int32. a is signed, b as
  // the name says. sum has a's rows and b's bytes a row; b's rows are a's bytes a row / 4.
  template <int kSum, int kA, int kB>
  void multiply_by_signed() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB) : "memory");
  }
  template <int kSum, int kA, int kB>
  void multiply_by_unsigned() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSum), "i"(kA), "i"(kB) : "memory");
  }
};

}  // namespace outrider

#include "cpu/limit_loops.h"

#include <cstdint>
#include <numeric>
#include <span>

#include "base/error.h"
#include "cpu/kernels/x86/intrinsics.h"
#include "cpu/kernels/x86/tiles.h"

namespace outrider {
namespace {

constexpr std::size_t kLineBytes = 64;

template <PrefetchHint hint>
void ask_for(const std::byte* line) {
  const char* place = reinterpret_cast<const char*>(line);
  if constexpr (hint == PrefetchHint::l1) _mm_prefetch(place, _MM_HINT_T0);
  if constexpr (hint == PrefetchHint::l2) _mm_prefetch(place, _MM_HINT_T1);
  if constexpr (hint == PrefetchHint::once) _mm_prefetch(place, _MM_HINT_NTA);
}

// A step of a loop reads four lines into as many sums, whatever the width of a load.
constexpr std::size_t kLines = 4;

std::uint64_t sum_of(std::span<const std::uint64_t> lanes) {
  return std::accumulate(lanes.begin(), lanes.end(), std::uint64_t{0});
}

[[OUTRIDER_AVX512]] std::uint64_t read_512(const std::byte* first, std::size_t bytes) {
  __m512i sums[kLines] = {};
  for (std::size_t at = 0; at < bytes; at += kLines * kLineBytes) {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < kLines; ++i) {
      sums[i] = _mm512_add_epi64(sums[i], _mm512_load_si512(first + at + i * kLineBytes));
    }
  }
  std::uint64_t lanes[8];
  _mm512_storeu_si512(lanes, _mm512_add_epi64(_mm512_add_epi64(sums[0], sums[1]),
                                              _mm512_add_epi64(sums[2], sums[3])));
  return sum_of(lanes);
}

template <PrefetchHint hint>
[[OUTRIDER_AVX2]] std::uint64_t read_256(const std::byte* first, std::size_t bytes,
                                         const ReadLoop& loop) {
  __m256i sums[kLines] = {};
  const std::size_t stream = bytes / loop.streams;
  for (std::size_t at = 0; at < stream; at += kLines * kLineBytes) {
    for (std::size_t s = 0; s < loop.streams; ++s) {
      const std::byte* lines = first + s * stream + at;
#pragma GCC unroll 4
      for (std::size_t i = 0; i < kLines; ++i) {
        ask_for<hint>(lines + loop.ahead + i * kLineBytes);
        const auto* halves = reinterpret_cast<const __m256i*>(lines + i * kLineBytes);
        sums[i] = _mm256_add_epi64(sums[i], _mm256_load_si256(halves));
        sums[i] = _mm256_add_epi64(sums[i], _mm256_load_si256(halves + 1));
      }
    }
  }
  std::uint64_t lanes[4];
  _mm256_storeu_si256(
      reinterpret_cast<__m256i*>(lanes),
      _mm256_add_epi64(_mm256_add_epi64(sums[0], sums[1]), _mm256_add_epi64(sums[2], sums[3])));
  return sum_of(lanes);
}

std::uint64_t read_128(const std::byte* first, std::size_t bytes) {
  __m128i sums[kLines] = {};
  for (std::size_t at = 0; at < bytes; at += kLineBytes) {
    const auto* parts = reinterpret_cast<const __m128i*>(first + at);
    for (std::size_t i = 0; i < kLines; ++i)
      sums[i] = _mm_add_epi64(sums[i], _mm_load_si128(parts + i));
  }
  std::uint64_t lanes[2];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes),
                   _mm_add_epi64(_mm_add_epi64(sums[0], sums[1]), _mm_add_epi64(sums[2], sums[3])));
  return sum_of(lanes);
}

// The instructions that are counted are written in assembly, so that the compiler neither merges
// them nor moves them out of the loop.

// Twelve chains hide an instruction's latency on every machine so far, and leave registers for the
// factors.
constexpr int kChains = 12, kSteps = 500'000;

// sum += a * b, in registers of 256 bits or, with %g, of 512 bits, of which the compiler knows the
// lower half only. So all loops are AVX2 functions for the compiler, and one template is enough.
struct Fma256 {
  static constexpr int kMultiplyAdds = 8;
  [[OUTRIDER_AVX2, gnu::always_inline]] static void step(__m256i& sum, __m256i a, __m256i b) {
    asm volatile("vfmadd231ps %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  }
};
struct Fma512 {
  static constexpr int kMultiplyAdds = 16;
  [[OUTRIDER_AVX2, gnu::always_inline]] static void step(__m256i& sum, __m256i a, __m256i b) {
    asm volatile("vfmadd231ps %g2, %g1, %g0" : "+x"(sum) : "x"(a), "x"(b));
  }
};
struct Vnni256 {
  static constexpr int kMultiplyAdds = 32;
  [[OUTRIDER_AVX2, gnu::always_inline]] static void step(__m256i& sum, __m256i a, __m256i b) {
    asm volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
  }
};
struct Vnni512 {
  static constexpr int kMultiplyAdds = 64;
  [[OUTRIDER_AVX2, gnu::always_inline]] static void step(__m256i& sum, __m256i a, __m256i b) {
    asm volatile("vpdpbusd %g2, %g1, %g0" : "+x"(sum) : "x"(a), "x"(b));
  }
};

template <typename Instruction>
[[OUTRIDER_AVX2]] std::uint64_t chains() {
  const __m256i a = _mm256_castps_si256(_mm256_set1_ps(0.5f));  // as bytes: 0, 0, 0, 63
  __m256i sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_setzero_si256();
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) Instruction::step(sums[i], a, a);
  }
  std::uint64_t sum = 0;
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) sum += _mm256_extract_epi64(sums[i], 0);
  return sum;
}

template <typename Instruction>
ComputeLoop chains_of() {
  return {2.0 * Instruction::kMultiplyAdds * kChains * kSteps, chains<Instruction>};
}

// Each chain takes 256 products per step: eight multiplications to 16 bits, then their sum is
// widened to 32 bits. Four chains were 1 % faster than one, which gives the processor fewer
// instructions to choose from.
constexpr int kAvx2Chains = 4, kAvx2Steps = 250'000;

[[OUTRIDER_AVX2]] std::uint64_t products_256() {
  const __m256i a = _mm256_set1_epi8(1), b = _mm256_set1_epi8(2), ones = _mm256_set1_epi16(1);
  __m256i sums[kAvx2Chains] = {};
  for (int step = 0; step < kAvx2Steps; ++step) {
    __m256i eight[kAvx2Chains];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
#pragma GCC unroll 4
      for (int c = 0; c < kAvx2Chains; ++c) {
        __m256i products;
        asm volatile("vpmaddubsw %2, %1, %0" : "=x"(products) : "x"(a), "x"(b));
        if (i == 0) {
          eight[c] = products;
        } else {  // in assembly, too: GCC 12 would compute all products first, and spill them
          asm volatile("vpaddw %1, %0, %0" : "+x"(eight[c]) : "x"(products));
        }
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < kAvx2Chains; ++c)
      sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(eight[c], ones));
  }
  return _mm256_extract_epi64(
      _mm256_add_epi64(_mm256_add_epi64(sums[0], sums[1]), _mm256_add_epi64(sums[2], sums[3])), 0);
}

// Six tiles hold sums, the other two the factors.
constexpr int kTileSteps = 40'000;

std::uint64_t tiles() {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) config.shape(tile, kTileRows, kTileBytes);
  alignas(64) std::int32_t out[kTileRows][kTileBytes / 4] = {{1}};
  HardwareTiles unit(config);
  unit.load<6>(out, kTileBytes);
  unit.load<7>(out, kTileBytes);
  unit.zero<0>();
  unit.zero<1>();
  unit.zero<2>();
  unit.zero<3>();
  unit.zero<4>();
  unit.zero<5>();
  for (int step = 0; step < kTileSteps; ++step) {
    unit.multiply_by_signed<0, 6, 7>();
    unit.multiply_by_signed<1, 6, 7>();
    unit.multiply_by_signed<2, 6, 7>();
    unit.multiply_by_signed<3, 6, 7>();
    unit.multiply_by_signed<4, 6, 7>();
    unit.multiply_by_signed<5, 6, 7>();
  }
  unit.store<0>(out, kTileBytes);
  return out[0][0];
}

}  // namespace

std::uint64_t read_all(const std::byte* first, std::size_t bytes, const ReadLoop& loop) {
  CHECK(loop.bits == 256 || (loop.hint == PrefetchHint::none && loop.streams == 1));
  if (loop.bits == 128) return read_128(first, bytes);
  if (loop.bits == 512) return read_512(first, bytes);
  CHECK(loop.bits == 256);
  switch (loop.hint) {
    case PrefetchHint::none: return read_256<PrefetchHint::none>(first, bytes, loop);
    case PrefetchHint::l1: return read_256<PrefetchHint::l1>(first, bytes, loop);
    case PrefetchHint::l2: return read_256<PrefetchHint::l2>(first, bytes, loop);
    case PrefetchHint::once: return read_256<PrefetchHint::once>(first, bytes, loop);
  }
  CHECK(false);
}

std::optional<ComputeLoop> vnni_loop() {
  if (is_available(Isa::avx512)) return chains_of<Vnni512>();
  if (is_available(Isa::avxvnni)) return chains_of<Vnni256>();  // without AVX-512, encoded as VEX
  return {};
}

std::optional<ComputeLoop> avx2_loop() {
  if (!is_available(Isa::avx2)) return {};
  return ComputeLoop{2.0 * 8 * 32 * kAvx2Chains * kAvx2Steps, products_256};
}

std::optional<ComputeLoop> amx_loop() {
  if (!is_available(Isa::amx)) return {};
  return ComputeLoop{2.0 * 16 * 16 * 64 * 6 * kTileSteps, tiles};
}

std::optional<ComputeLoop> fma_loop() {
  if (is_available(Isa::avx512)) return chains_of<Fma512>();
  if (is_available(Isa::avx2)) return chains_of<Fma256>();
  return {};
}

}  // namespace outrider

#include "cpu/limit_loops.h"

#include <arm_neon.h>

#include "base/error.h"

namespace outrider {

std::uint64_t read_all(const std::byte* first, std::size_t bytes, const ReadLoop& loop) {
  CHECK(loop.bits == 128 && loop.hint == PrefetchHint::none && loop.streams == 1);
  constexpr std::size_t kSums = 4, kLoadBytes = sizeof(uint64x2_t);
  uint64x2_t sums[kSums] = {};
  for (std::size_t at = 0; at < bytes; at += kSums * kLoadBytes) {
    const auto* line = reinterpret_cast<const std::uint64_t*>(first + at);
    for (std::size_t i = 0; i < kSums; ++i) sums[i] = vaddq_u64(sums[i], vld1q_u64(line + 2 * i));
  }
  return vaddvq_u64(vaddq_u64(vaddq_u64(sums[0], sums[1]), vaddq_u64(sums[2], sums[3])));
}

// None is measured: the reference kernels, the only ones here, do not come near the machine's
// limits.
std::optional<ComputeLoop> vnni_loop() {
  return {};
}

std::optional<ComputeLoop> avx2_loop() {
  return {};
}

std::optional<ComputeLoop> amx_loop() {
  return {};
}

std::optional<ComputeLoop> fma_loop() {
  return {};
}

}  // namespace outrider

// The loops behind cpu/limit_meter.h: each does one thing as fast as the machine can.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cpu/isa.h"

namespace outrider {

// Where a prefetch puts a line. `once`: it will not be read again (prefetchnta).
enum class PrefetchHint { none, l1, l2, once };

struct ReadLoop {
  int bits = 128;  // of a load; the machine must have such registers
  // With loads of 256 bits:
  PrefetchHint hint = PrefetchHint::none;  // of the prefetches
  std::size_t ahead = 0;    // bytes between a load and its prefetch, which may be past the end
  std::size_t streams = 1;  // parts that are read side by side
};

// Reads every line of `bytes` (a multiple of 256 * streams) from `first` (64-byte aligned). Returns
// a sum of what it read.
std::uint64_t read_all(const std::byte* first, std::size_t bytes, const ReadLoop& loop);

// About 2 ms of work on registers only.
struct ComputeLoop {
  double operations;       // of one run; a multiply-add is two
  std::uint64_t (*run)();  // returns something that depends on the work
};

// int8 products by VNNI, by AVX2 (with sums of 16 bits in between), by tiles; float fma. Each on
// the widest registers that this machine has; nothing if it lacks the instruction.
std::optional<ComputeLoop> vnni_loop();
std::optional<ComputeLoop> avx2_loop();
std::optional<ComputeLoop> amx_loop();
std::optional<ComputeLoop> fma_loop();

}  // namespace outrider

// The loops behind cpu/limit_meter.h: each does one thing as fast as the machine can.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cpu/isa.h"

namespace outrider {

// Where a prefetch puts a line; `once`: it will not be read again (prefetchnta).
enum class Hint { none, l1, l2, once };

struct ReadLoop {
  int bits = 128;           // of a load; the machine must have such registers
  Hint hint = Hint::none;   // lines asked for `ahead` bytes early
  std::size_t ahead = 0;    // so far past the end may be asked for, too
  std::size_t streams = 1;  // parts read side by side
};

// Reads every line of `bytes` (a multiple of 256 * streams) from `first` (64-byte aligned), which
// returns a sum of what it read.
std::uint64_t read_all(const std::byte* first, std::size_t bytes, const ReadLoop& loop);

// Some 2 ms of work on registers only.
struct ComputeLoop {
  double operations;       // of one run, two a multiply-add
  std::uint64_t (*run)();  // returns something that depends on the work
};

// int8 products by VNNI, by AVX2 (16 bits between), by tiles; float fma. Each on the widest
// registers that this machine has; nothing where it lacks the instruction.
std::optional<ComputeLoop> vnni_loop();
std::optional<ComputeLoop> avx2_loop();
std::optional<ComputeLoop> amx_loop();
std::optional<ComputeLoop> fma_loop();

}  // namespace outrider

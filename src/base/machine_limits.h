// What a machine can do at best: the figures that kernels are compared with. A device measures them
// (cpu/limit_meter.h), the command line shows them.

#pragma once

#include <string>
#include <vector>

namespace outrider {

// Of all threads together. A multiply-add counts as two operations. Zero where the machine has no
// instruction for it.
struct MachineLimits {
  struct ReadRate {
    std::string pattern;  // how memory was read, in a few words
    double gbs = 0;       // 10^9 bytes per second
  };
  std::vector<ReadRate> read_rates;  // of memory far larger than the caches, in huge pages
  double int8_tops = 0;              // 10^12 per second: VNNI on registers
  double avx2_tops = 0;              // int8 by AVX2: 8 vpmaddubsw, 7 vpaddw, vpmaddwd, vpaddd
  double amx_tops = 0;               // int8 tiles
  double f32_tflops = 0;             // 10^12 per second: fma on the widest registers
};

// Keeps its threads and memory between measurements, so that these can alternate with what they are
// compared with: on a shared machine the limits change within seconds.
class LimitMeter {
 public:
  virtual ~LimitMeter() = default;

  // With the first n_threads of its threads: reads all its memory once in each pattern, and
  // computes for some milliseconds. Patterns and their order are the same in every call.
  virtual MachineLimits measure(int n_threads) = 0;
  // With the first n_threads of its threads: reads all its memory once by products of Q4_K with one
  // row, with each prefetch pattern. Empty if the instruction set has only one.
  virtual std::vector<MachineLimits::ReadRate> measure_products(int n_threads) = 0;
};

}  // namespace outrider

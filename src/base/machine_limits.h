// What a machine can do at best: the figures that kernels are held against. A device measures them
// (cpu/limit_meter.h), the command line shows them.

#pragma once

#include <string>
#include <vector>

namespace outrider {

// Of all threads together. An operation is a multiplication or an addition, so a multiply-add is
// two. Zero where the machine has no instruction for it.
struct Limits {
  struct Reading {
    std::string pattern;  // how memory was read, in a few words
    double gbs = 0;       // 10^9 bytes a second
  };
  std::vector<Reading> readings;  // of memory far larger than the caches, in huge pages
  double int8_tops = 0;           // 10^12 a second: VNNI on registers
  double avx2_tops = 0;           // int8 by AVX2: 8 vpmaddubsw, 7 vpaddw, vpmaddwd, vpaddd
  double amx_tops = 0;            // int8 tiles
  double f32_tflops = 0;          // 10^12 a second: fma on the widest registers
};

// Its threads and memory are ready between measurements, so that these can alternate with what they
// are compared to: on a shared machine the limits move within seconds.
class LimitMeter {
 public:
  virtual ~LimitMeter() = default;

  // With the first n_threads of its threads: reads all its memory once in each pattern, the
  // patterns always the same and in one order, and computes for some milliseconds.
  virtual Limits measure(int n_threads) = 0;
};

}  // namespace outrider

// What a machine can do at best: the figures that kernels are held against. cpu/limits.h measures
// them, the command line shows them.

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

}  // namespace outrider

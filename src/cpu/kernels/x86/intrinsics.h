// Intrinsics for files that hold kernels of several instruction sets, built without -march flags: a
// function names its instruction set itself, [[OUTRIDER_AVX512]] void f(). A lambda inside it would
// lose it: write functions.

#pragma once

// GCC 12 takes the deliberately undefined values inside its own AVX-512 intrinsics for mistakes
// (GCC bug 105593).
#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#ifndef __clang__
#pragma GCC diagnostic pop
#endif

// What cpu/isa.h calls avx2, avxvnni in its two encodings and avx512; amx adds only assembly.
#define OUTRIDER_AVX2 gnu::target("avx2,fma,f16c")
#define OUTRIDER_AVXVNNI_VEX gnu::target("avxvnni,avx2,fma,f16c")
#define OUTRIDER_AVXVNNI_EVEX gnu::target("avx512f,avx512vl,avx512vnni,avx2,fma,f16c")
#define OUTRIDER_AVX512 gnu::target("avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")

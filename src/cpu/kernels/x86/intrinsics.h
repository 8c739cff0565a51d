// Intrinsics for files built without -march flags, so that a program of several instruction sets
// never runs one that the processor lacks. Code says itself which set it is for, in one of two
// ways:
//
//   A function: [[OUTRIDER_AVX512]] void f(). A lambda inside it would lose the set under g++ 12:
//   write functions.
//
//   A region: OUTRIDER_BEGIN(OUTRIDER_AVX512_SET) ... OUTRIDER_END, for all that is defined in it,
//   templates and lambdas too. It is for headers that are templates over a vector type
//   (vector_functions.h), in files of one set. before_region.h comes before it and includes what
//   those headers include: an inline function of another header that got the set might replace the
//   one that the rest of the program uses.

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

// What cpu/isa.h calls avx2 and avx512; avxvnni adds only assembly to the first, amx to the second.
#define OUTRIDER_AVX2_SET "avx2,fma,f16c"
#define OUTRIDER_AVX512_SET "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c"
#define OUTRIDER_AVX2 gnu::target(OUTRIDER_AVX2_SET)
#define OUTRIDER_AVX512 gnu::target(OUTRIDER_AVX512_SET)

#define OUTRIDER_PRAGMA(tokens) _Pragma(#tokens)
#ifdef __clang__
#define OUTRIDER_BEGIN(set) \
  OUTRIDER_PRAGMA(clang attribute push(__attribute__((target(set))), apply_to = function))
#define OUTRIDER_END OUTRIDER_PRAGMA(clang attribute pop)
#else
#define OUTRIDER_BEGIN(set) OUTRIDER_PRAGMA(GCC push_options) OUTRIDER_PRAGMA(GCC target set)
#define OUTRIDER_END OUTRIDER_PRAGMA(GCC pop_options)
#endif

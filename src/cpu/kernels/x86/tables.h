// What each instruction set of x86 puts into the table of kernels.h, in its own files.

#pragma once

#include <array>

#include "cpu/kernels/kernels.h"

namespace outrider {

extern const ProductKernels kProductsAvx2, kProductsAvxVnniVex, kProductsAvxVnniEvex;
// [kPrefetchPatterns]
extern const std::array<ProductKernels, kPrefetchPatterns.size()> kProductsAvx512, kProductsAmx;
extern const VectorKernels kVectorsAvx2, kVectorsAvx512;
extern const AttentionKernels kAttentionAvx2, kAttentionAvx512;
extern const ChoiceKernels kChoiceAvx2, kChoiceAvx512;

}  // namespace outrider

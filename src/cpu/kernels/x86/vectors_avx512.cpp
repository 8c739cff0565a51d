// Kernels that differ in their vectors alone, on AVX-512.

#include "cpu/kernels/x86/avx512.h"
#include "cpu/kernels/x86/before_region.h"

OUTRIDER_BEGIN(OUTRIDER_AVX512_SET)
#include "cpu/kernels/attention_values.h"
#include "cpu/kernels/choice_vectors.h"
#include "cpu/kernels/vector_kernels.h"
OUTRIDER_END

namespace outrider {

const VectorKernels kVectorsAvx512 = VectorKernelsOn<Avx512>::table();
const AttentionKernels kAttentionAvx512 = AttentionOn<Avx512>::table();
const ChoiceKernels kChoiceAvx512 = ChoiceOn<Functions<Avx512>>::table();

}  // namespace outrider

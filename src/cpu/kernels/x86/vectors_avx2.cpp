// Kernels that differ in their vectors alone, on AVX2.

#include "cpu/kernels/x86/avx2.h"
#include "cpu/kernels/x86/before_region.h"

OUTRIDER_BEGIN(OUTRIDER_AVX2_SET)
#include "cpu/kernels/attention_values.h"
#include "cpu/kernels/choice_vectors.h"
#include "cpu/kernels/vector_kernels.h"
#include "cpu/kernels/vector_pair.h"
OUTRIDER_END

namespace outrider {

const VectorKernels kVectorsAvx2 = VectorKernelsOn<Avx2>::table();
const AttentionKernels kAttentionAvx2 = AttentionOn<Avx2>::table();
const ChoiceKernels kChoiceAvx2 = ChoiceOn<Pair<Functions<Avx2>>>::table();

}  // namespace outrider

#include "cpu/kernels/x86/tables.h"

namespace outrider {

std::span<const Kernels> kernel_tables() {
  static const Kernels tables[] = {
      {Isa::reference, kProductsReference, kVectorsReference, kAttentionReference, nullptr},
      {Isa::avx2, kProductsAvx2, kVectorsAvx2, kAttentionAvx2, &kChoiceAvx2},
      {Isa::avxvnni,
       vnni_encoding() == VnniEncoding::vex ? kProductsAvxVnniVex : kProductsAvxVnniEvex,
       kVectorsAvx2, kAttentionAvx2, &kChoiceAvx2},
      {Isa::avx512, kProductsAvx512[0], kVectorsAvx512, kAttentionAvx512, &kChoiceAvx512,
       kProductsAvx512},
      {Isa::amx, kProductsAmx[0], kVectorsAvx512, kAttentionAvx512, &kChoiceAvx512, kProductsAmx},
  };
  return tables;
}

}  // namespace outrider

#include "cpu/kernels/kernels.h"

namespace outrider {

std::span<const Kernels> kernel_tables() {
  static const Kernels tables[] = {
      {Isa::reference, kProductsReference, kVectorsReference, kAttentionReference, nullptr},
  };
  return tables;
}

}  // namespace outrider

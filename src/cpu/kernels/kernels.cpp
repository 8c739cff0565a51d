#include "cpu/kernels/kernels.h"

#include "base/error.h"

namespace outrider {

const Kernels& kernels(Isa isa) {
  static const Kernels tables[] = {
      {Isa::reference, kProductsReference, kVectorsReference},
      {Isa::avx2, kProductsAvx2, kVectorsAvx2},
      {Isa::avx512, kProductsAvx512, kVectorsAvx512},
  };
  const std::size_t index = static_cast<std::size_t>(isa);
  CHECK(index < available_isas().size());
  return tables[index];
}

}  // namespace outrider

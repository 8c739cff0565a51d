#include "cpu/kernels/product_variants_test.h"

namespace outrider {

std::vector<ProductVariant> variants_without_table() {
  return {};
}

}  // namespace outrider

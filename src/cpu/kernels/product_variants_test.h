// What products_test.cpp compares with the reference besides the tables of kernels.h.

#pragma once

#include <string>
#include <vector>

#include "cpu/kernels/kernels.h"

namespace outrider {

struct ProductVariant {
  std::string name;
  ProductKernels kernels;
};

// Products that this machine can run but that no table has: other encodings, emulated instructions.
// The architecture's folder has them, in product_variants_test.cpp.
std::vector<ProductVariant> variants_without_table();

}  // namespace outrider

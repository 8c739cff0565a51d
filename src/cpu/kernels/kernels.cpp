#include "cpu/kernels/kernels.h"

#include <algorithm>

#include "base/error.h"

namespace outrider {

const Kernels& kernels(Isa isa) {
  CHECK(is_available(isa));
  return *std::ranges::find(kernel_tables(), isa, &Kernels::isa);
}

}  // namespace outrider

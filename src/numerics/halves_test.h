// Random blocks of weights need halves of a chosen size.

#pragma once

#include <cstddef>
#include <cstring>

#include "numerics/blocks.h"

namespace outrider {

// Sets d, and m where the type has it, of one block of a quantized type as the file has it.
inline void set_halves(TensorType type, Half d, Half m, std::byte* block) {
  if (type == TensorType::iq1_m) {  // four bits of d each above four numbers
    for (int digit = 0; digit < 4; ++digit) {
      std::byte& high = block[49 + 2 * digit];
      high = (high & std::byte{15}) | std::byte(d >> 4 * digit << 4 & 0xf0);
    }
    return;
  }
  const HalfPlaces places = half_places(type);
  std::memcpy(block + places.d, &d, sizeof d);
  if (block_shape(type).has_min) std::memcpy(block + places.m, &m, sizeof m);
}

}  // namespace outrider

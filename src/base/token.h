#pragma once

#include <cstdint>

namespace outrider {

// An entry of a vocabulary: its index, 0 to vocabulary size - 1.
using Token = std::int32_t;

}  // namespace outrider

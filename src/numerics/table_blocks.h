// IQ1 to IQ3: types whose weights are entries of tables, eight or four neighbours at a time, with
// signs or an offset beside them.

#pragma once

#include <cstddef>

#include "numerics/blocks.h"

namespace outrider {

// Does what decode_block() does, but sets d only for IQ1_M.
void decode_table_block(TensorType type, const std::byte* raw, Block& block);

}  // namespace outrider

// How attention's kernels share out the rows of a call: blocks of as equal sizes as can be, none
// larger than registers hold (7 rows are better done as 4 + 3 than as 6 + 1).

#pragma once

#include <cstddef>

#include "base/matrix_view.h"
#include "base/threads.h"

namespace outrider {

// calls block(range) for each.
template <typename Block>
void for_even_blocks(std::size_t rows, std::size_t most, Block block) {
  const std::size_t blocks = (rows + most - 1) / most;
  for (std::size_t i = 0; i < blocks; ++i) block(share(rows, i, blocks));
}

template <typename T>
MatrixView<T> rows_of(MatrixView<T> view, Range rows) {
  return {view[rows.begin].data(), rows.end - rows.begin, view.columns(), view.stride()};
}

}  // namespace outrider

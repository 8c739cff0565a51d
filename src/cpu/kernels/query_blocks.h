// How attention's kernels divide the queries of a call: into blocks of nearly equal sizes, none
// larger than registers hold (7 queries are faster as 4 + 3 than as 6 + 1).

#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "base/matrix_view.h"
#include "base/threads.h"

namespace outrider {

// body(range, n) for each block, n its queries as an integral_constant: a template's argument.
template <std::size_t kMost, typename Body>
void for_even_blocks(std::size_t rows, Body body) {
  const auto run = [&]<int... kRows>(Range block, std::integer_sequence<int, kRows...>) {
    const int n = static_cast<int>(block.end - block.begin);
    ((n == kRows + 1 ? body(block, std::integral_constant<int, kRows + 1>()) : void()), ...);
  };
  const std::size_t blocks = (rows + kMost - 1) / kMost;
  for (std::size_t i = 0; i < blocks; ++i)
    run(share(rows, i, blocks), std::make_integer_sequence<int, kMost>());
}

template <typename T>
MatrixView<T> rows_of(MatrixView<T> view, Range rows) {
  return {view[rows.begin].data(), rows.end - rows.begin, view.columns(), view.stride()};
}

}  // namespace outrider

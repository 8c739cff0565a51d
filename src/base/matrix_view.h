// A view of a matrix: row-major, rows `stride` elements apart. Does not own it.

#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

namespace outrider {

template <typename T>
class MatrixView {
 public:
  MatrixView() = default;
  MatrixView(T* first, std::size_t rows, std::size_t columns)
      : MatrixView(first, rows, columns, columns) {}
  MatrixView(T* first, std::size_t rows, std::size_t columns, std::size_t stride)
      : first_(first), rows_(rows), columns_(columns), stride_(stride) {}

  // A mutable view is also a read-only one.
  operator MatrixView<const T>() const requires(!std::is_const_v<T>) {
    return {first_, rows_, columns_, stride_};
  }

  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return columns_; }
  std::size_t stride() const { return stride_; }
  // The part from that element on, down and to the right.
  MatrixView from(std::size_t row, std::size_t column) const {
    return {first_ + row * stride_ + column, rows_ - row, columns_ - std::min(column, columns_),
            stride_};
  }
  std::span<T> operator[](std::size_t row) const { return {first_ + row * stride_, columns_}; }

 private:
  T* first_ = nullptr;
  std::size_t rows_ = 0, columns_ = 0, stride_ = 0;
};

}  // namespace outrider

// Hands out one piece of memory part by part. Without memory it only counts, so that one function
// both measures a layout and lays it out.

#pragma once

#include <cstddef>
#include <span>

#include "base/error.h"
#include "base/matrix_view.h"

namespace outrider {

constexpr std::size_t rounded_up(std::size_t n, std::size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

class BumpAllocator {
 public:
  BumpAllocator() = default;  // only counts: take() returns empty spans
  // The memory begins at a multiple of 64 bytes and must outlive what is handed out.
  explicit BumpAllocator(std::span<std::byte> memory) : memory_(memory) {}

  // Each part begins at a multiple of 64 bytes (a line of the processor's caches), as do a matrix's
  // rows. They are not initialized.
  template <typename T>
  std::span<T> take(std::size_t count) {
    const std::size_t first = used_;
    used_ += rounded_up(count * sizeof(T), kLineBytes);
    if (memory_.data() == nullptr) return {};
    CHECK(used_ <= memory_.size());
    return {reinterpret_cast<T*>(memory_.data() + first), count};
  }
  template <typename T>
  MatrixView<T> take(std::size_t rows, std::size_t columns) {
    const std::size_t stride = rounded_up(columns, kLineBytes / sizeof(T));
    return {take<T>(rows * stride).data(), rows, columns, stride};
  }

  std::size_t used_bytes() const { return used_; }

 private:
  static constexpr std::size_t kLineBytes = 64;

  std::span<std::byte> memory_;
  std::size_t used_ = 0;
};

}  // namespace outrider

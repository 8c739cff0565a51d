// Weight matrices in the order in which kernels read them. Packing changes no value.
//
// 16 outputs make a panel; inside a panel columns go in units of [16 outputs][4 columns], one byte
// each once unpacked: one 512-bit register for VNNI, two 256-bit ones for AVX2.

#pragma once

#include <cstddef>

#include "base/threads.h"
#include "formats/checkpoint.h"
#include "formats/tensor_type.h"
#include "numerics/products.h"

namespace outrider {

inline constexpr std::size_t kPanel = 16;

struct PackedMatrix {
  TensorType type = TensorType::f32;  // of the layout: packed_as() the file's (cpu/panel.h)
  std::size_t outputs = 0, columns = 0;
  std::size_t panel_bytes = 0;  // a multiple of 64
  const std::byte* first = nullptr;

  std::size_t panels() const { return (outputs + kPanel - 1) / kPanel; }
  const std::byte* panel(std::size_t index) const { return first + index * panel_bytes; }
};

// type: the file's, here and below.
std::size_t packed_panel_bytes(TensorType type, std::size_t columns);
// Bytes of a row before it is packed.
std::size_t row_bytes(TensorType type, std::size_t columns);

// Packs one panel of up to 16 outputs, whose rows stand one after another. What it has beyond them
// is packed as zeros.
void pack_panel(TensorType type, std::size_t columns, const std::byte* rows, std::size_t outputs,
                std::byte* panel);

// Packs panels [panels.begin, panels.end) of `tensor` (a matrix: columns() inputs, rows() outputs)
// into `out`, which begins at panel 0 and is 64-byte aligned. Panels may be packed in parallel.
void pack(const TensorView& tensor, Range panels, std::byte* out);

}  // namespace outrider

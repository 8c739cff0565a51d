// product_calls ISA TYPE ROWS OUTPUTS COLUMNS CALLS: multiplies that often, for a counter of
// instructions to watch. What differs between two numbers of calls is what calls cost.

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/huge_buffer.h"
#include "cpu/kernels/kernels.h"
#include "cpu/pack.h"
#include "cpu/panel.h"

using namespace outrider;

namespace {

constexpr int kSkipped = 77;

std::size_t number(const char* text) {
  return static_cast<std::size_t>(std::atol(text));
}

template <typename List, typename Name>
auto find(const List& list, std::string_view wanted, Name name) {
  for (const auto& item : list) {
    if (name(item) == wanted) return item;
  }
  fmt::print(stderr, "{}: there is none here\n", wanted);
  std::exit(kSkipped);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    fmt::print(stderr, "usage: product_calls ISA TYPE ROWS OUTPUTS COLUMNS CALLS\n");
    return 2;
  }
  const Isa isa = find(available_isas(), argv[1], [](Isa each) { return name(each); });
  const TensorType type = find(all_tensor_types(), argv[2], [](const TensorTypeTraits& each) {
                            return each.name;
                          }).type;
  const std::size_t rows = number(argv[3]), columns = number(argv[5]);

  // Zeros, for no kernel looks at what it multiplies.
  PackedMatrix weights;
  weights.type = packed_as(type);
  weights.outputs = number(argv[4]);
  weights.columns = columns;
  weights.panel_bytes = packed_panel_bytes(type, columns);
  // Kernels prefetch beyond the end.
  HugeBuffer buffer(weights.panel_bytes * weights.panels() + (64 << 10));
  weights.first = buffer.begin();
  const std::vector<float> x(rows * columns), d(rows * columns / 32);
  const std::vector<std::int8_t> q(rows * columns);
  const std::vector<std::int16_t> sums16(rows * columns / 16);
  const ProductInput input = {
      {x.data(), rows, columns},
      {q.data(), d.data(), sums16.data(), columns, columns / 32, columns / 16},
      {q.data(), d.data(), sums16.data(), columns, columns / 128, columns / 16},
      {q.data(), d.data(), sums16.data(), columns, columns / 256, columns / 16}};
  std::vector<float> out(rows * weights.panels() * kPanel);
  const MatrixView<float> view(out.data(), rows, weights.panels() * kPanel);
  const ProductKernels& products = kernels(isa).products;
  std::vector<ArrangedRows::Line> memory(products.lines(weights, rows));
  ArrangedRows arranged;
  arranged.memory = memory;
  for (std::size_t call = 0; call < number(argv[6]); ++call) {
    products.arrange(weights, input, {0, rows}, arranged);
    products.product(weights, arranged, {0, weights.panels()}, view);
  }
}

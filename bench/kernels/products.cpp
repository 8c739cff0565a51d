// Products of packed weights with rows of activations. An iteration is one matrix of about 8 MiB.
// The next iteration takes the next of many matrices, as a pass takes one layer after the other.

#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/huge_buffer.h"
#include "cpu/kernels/kernels.h"
#include "cpu/panel.h"
#include "kernels.h"
#include "numerics/blocks.h"
#include "numerics/halves_test.h"

namespace outrider {
namespace {

constexpr std::size_t kColumns = 2048;  // a multiple of every group
constexpr std::size_t kMatrixBytes = std::size_t{8} << 20;
constexpr std::size_t kRows[] = {1, 2, 4, 8, 16, 32, 64, 512};

// Random integers; halves and floats of ordinary size, since subnormal ones would be slow.
std::vector<std::byte> random_weights(TensorType type, std::size_t outputs) {
  std::minstd_rand rng;
  const TensorTypeTraits& t = traits(type);
  std::vector<std::byte> bytes(outputs * kColumns / t.block_elements * t.block_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng() >> 8);
  const auto put_half = [&](std::size_t at, std::uint16_t half) {
    std::memcpy(&bytes[at], &half, sizeof half);
  };
  constexpr std::uint16_t kHalf = 0x2c00, kBfloat = 0x3d80;  // 1/16 in both
  for (std::size_t at = 0; at < bytes.size(); at += t.block_bytes) {
    if (type == TensorType::f32) {
      const float x = 0.0625f;
      std::memcpy(&bytes[at], &x, sizeof x);
    } else if (t.block_elements == 1) {
      put_half(at, type == TensorType::f16 ? kHalf : kBfloat);
    } else {
      set_halves(type, kHalf, kHalf, &bytes[at]);
    }
  }
  return bytes;
}

// Copies of one matrix. Each thread writes its own panels, which places them near it.
struct Matrices {
  struct Shape {
    Shape(TensorType type, const KernelBench& bench)
        : panel_bytes(packed_panel_bytes(type, kColumns)),
          panels(std::max<std::size_t>(static_cast<std::size_t>(bench.team.size()),
                                       std::min(kMatrixBytes, bench.stream_bytes) / panel_bytes)) {}
    std::size_t bytes() const { return panels * panel_bytes; }
    std::size_t panel_bytes, panels;
  };

  Matrices(TensorType type, const KernelBench& bench)
      : shape(type, bench),
        count(std::max<std::size_t>(1, bench.stream_bytes / shape.bytes())),
        memory(count * shape.bytes()) {
    one.type = packed_as(type);
    one.columns = kColumns;
    one.panel_bytes = shape.panel_bytes;
    one.outputs = shape.panels * kPanel;

    // A few panels of random weights, repeated.
    const std::size_t some = std::min<std::size_t>(64, shape.panels);
    const std::vector<std::byte> raw = random_weights(type, some * kPanel);
    TensorView tensor;
    tensor.type = type;
    tensor.shape = {static_cast<std::int64_t>(kColumns), static_cast<std::int64_t>(some * kPanel)};
    tensor.bytes = raw;
    HugeBuffer packed(some * shape.panel_bytes);
    pack(tensor, {0, some}, packed.begin());
    bench.team.run([&](int thread) {
      const Range own = share(shape.panels, thread, bench.team.size());
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t panel = own.begin; panel < own.end; ++panel) {
          std::memcpy(memory.begin() + i * shape.bytes() + panel * shape.panel_bytes,
                      packed.begin() + panel % some * shape.panel_bytes, shape.panel_bytes);
        }
      }
    });
  }

  PackedMatrix at(std::size_t index) const {
    PackedMatrix matrix = one;
    matrix.first = memory.begin() + index % count * shape.bytes();
    return matrix;
  }

  PackedMatrix one;
  Shape shape;
  std::size_t count;
  HugeBuffer memory;
};

// Activations in every form that a product may ask for.
struct Activations {
  explicit Activations(std::size_t rows)
      : x(rows * kColumns),
        q(rows * kColumns),  // on lines of the cache, as in a pass
        d(rows * kColumns / 32),
        sums16(rows * kColumns / 16) {
    std::minstd_rand rng;
    std::normal_distribution<float> normal;
    for (float& value : x) value = normal(rng);
  }

  ProductInput input(TensorType type, std::size_t rows, const ProductKernels& kernels) {
    const std::size_t group = block_shape(type).elements;
    ProductInput input;
    input.floats = MatrixView<const float>(x.data(), rows, kColumns, kColumns);
    if (group == 0) return input;
    const std::size_t groups = kColumns / group, sums = kColumns / 16;
    for (std::size_t row = 0; row < rows; ++row) {
      kernels.quantize(std::span(x).subspan(row * kColumns, kColumns), group,
                       {integers() + row * kColumns, &d[row * groups], &sums16[row * sums]});
    }
    const ProductInput::Quantized view{integers(), d.data(), sums16.data(), kColumns, groups, sums};
    switch (group) {
      case 32: input.groups_of_32 = view; break;
      case 128: input.groups_of_128 = view; break;
      default: input.groups_of_256 = view;
    }
    return input;
  }

  std::int8_t* integers() { return reinterpret_cast<std::int8_t*>(q.begin()); }

  std::vector<float> x;
  HugeBuffer q;
  std::vector<float> d;
  std::vector<std::int16_t> sums16;
};

// Keeps the matrices of one type at a time, because benchmarks run type by type.
class MatrixPool {
 public:
  explicit MatrixPool(const KernelBench& bench) : bench_(bench) {}
  const Matrices& of(TensorType type) {
    if (!matrices_ || matrices_->one.type != type) {
      matrices_.reset();  // first, so that two types never take memory together
      matrices_ = std::make_unique<Matrices>(type, bench_);
    }
    return *matrices_;
  }

 private:
  const KernelBench& bench_;
  std::unique_ptr<Matrices> matrices_;
};

KernelBody product(const KernelBench& bench, const Matrices& matrices,
                   const ProductKernels& kernels, std::size_t rows) {
  const PackedMatrix& one = matrices.one;
  const auto activations = std::make_shared<Activations>(rows);
  const ProductInput input = activations->input(one.type, rows, kernels);
  const std::size_t width = one.panels() * kPanel;
  const auto out = std::make_shared<std::vector<float>>(rows * width);
  // As in a pass, each thread arranges its rows for a matrix, in memory that it keeps.
  struct Arranged {
    std::vector<ArrangedRows::Line> memory;
    ArrangedRows rows;
  };
  const auto arranged = std::make_shared<std::vector<Arranged>>(bench.team.size());
  for (Arranged& own : *arranged) {
    own.memory.resize(kernels.lines(one, rows));
    own.rows.memory = own.memory;
  }
  return [&bench, &matrices, &kernels, activations, input, arranged, out, rows, width](
             int thread, std::size_t iteration) {
    const PackedMatrix matrix = matrices.at(iteration);
    const Range panels = share(matrix.panels(), thread, bench.team.size());
    ArrangedRows& own = (*arranged)[static_cast<std::size_t>(thread)].rows;
    kernels.arrange(matrix, input, {0, rows}, own);
    kernels.product(matrix, own, panels,
                    MatrixView<float>(out->data(), rows, width).from(0, panels.begin * kPanel));
  };
}

}  // namespace

void add_products(const KernelBench& bench) {
  const auto pool = std::make_shared<MatrixPool>(bench);
  for (const TensorTypeTraits& type : all_tensor_types()) {
    for (const Isa isa : available_isas()) {
      if (isa == Isa::reference) continue;  // the judge, not a kernel
      const bool is_float = type.block_elements == 1;
      for (const std::size_t rows : kRows) {
        const Matrices::Shape shape(type.type, bench);
        const double weights = static_cast<double>(shape.panels * kPanel * kColumns);
        const Work work = {.bytes = static_cast<double>(shape.bytes()),
                           .operations = 2 * weights * static_cast<double>(rows),
                           .tera = is_float ? bench.limits.f32_tflops : bench.int8_tops(isa)};
        add_kernel(bench, fmt::format("product/{}/{}/rows:{}", type.name, name(isa), rows), work,
                   [&bench, pool, &type, isa, rows] {
                     return product(bench, pool->of(type.type), kernels(isa).products, rows);
                   });
      }
    }
  }
}

}  // namespace outrider

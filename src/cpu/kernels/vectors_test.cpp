// Every instruction set's vector kernels against the reference table: bits, on ragged sizes and
// extreme values.

#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/numbers_test.h"
#include "numerics/rope.h"

namespace outrider {
namespace {

using testing::expect_same;
using testing::Numbers;

// body(kernels) for every table that can run here.
void for_each_isa(const std::function<void(const VectorKernels&)>& body) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name(isa));
    body(kernels(isa).vectors);
  }
}

constexpr std::size_t kSizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 100, 257, 1536};

TEST(VectorKernels, ElementwiseGiveTheReferencesBits) {
  using Out = std::span<float>;
  using In = std::span<const float>;
  struct Case {
    const char* name;
    void (*run)(const VectorKernels&, In a, In b, Out y);
  };
  const Case cases[] = {
      {"silu_times", [](const VectorKernels& k, In a, In b, Out y) { k.silu_times(a, b, y); }},
      {"gelu_tanh_times",
       [](const VectorKernels& k, In a, In b, Out y) { k.gelu_tanh_times(a, b, y); }},
      {"gate in place", [](const VectorKernels& k, In, In b, Out y) { k.silu_times(y, b, y); }},
      {"sigmoid_times", [](const VectorKernels& k, In a, In, Out y) { k.sigmoid_times(a, y); }},
      {"add", [](const VectorKernels& k, In a, In, Out y) { k.add(a, y); }},
      {"scale", [](const VectorKernels& k, In, In, Out y) { k.scale(0.37f, y); }},
      {"softcap", [](const VectorKernels& k, In, In, Out y) { k.softcap(30, y); }},
  };
  for_each_isa([&](const VectorKernels& kernels) {
    Numbers numbers(1);
    for (const Case& c : cases) {
      SCOPED_TRACE(c.name);
      for (const std::size_t n : kSizes) {
        SCOPED_TRACE(n);
        const std::vector<float> a = numbers.any_row(n), b = numbers.any_row(n);
        std::vector<float> expected = numbers.any_row(n + 1), found = expected;
        c.run(kVectorsReference, a, b, std::span(expected).first(n));
        c.run(kernels, a, b, std::span(found).first(n));
        expect_same(found, expected);  // the element past the end is not touched
      }
    }
  });
}

TEST(VectorKernels, NormsGiveTheReferencesBits) {
  for_each_isa([](const VectorKernels& kernels) {
    Numbers numbers(2);
    for (const std::size_t n : kSizes) {
      SCOPED_TRACE(n);
      for (const bool edges : {false, true}) {
        const std::vector<float> x = edges ? numbers.any_row(n) : numbers.ordinary_row(n);
        const std::vector<float> w = numbers.ordinary_row(n);
        for (const auto norm : {&VectorKernels::rms_norm, &VectorKernels::layer_norm}) {
          std::vector<float> expected(n), found = x;
          (kVectorsReference.*norm)(x, w, 1e-6f, expected);
          (kernels.*norm)(found, w, 1e-6f, found);  // in place
          expect_same(found, expected);
        }
      }
    }
  });
}

TEST(VectorKernels, RopeGivesTheReferencesBits) {
  for_each_isa([](const VectorKernels& kernels) {
    Numbers numbers(3);
    for (const int dims : {2, 6, 14, 16, 18, 32, 34, 64, 80, 128, 256}) {
      SCOPED_TRACE(dims);
      const RopeTable angles(20, rope_frequencies(dims, 10000));
      for (const auto rope : {&VectorKernels::rope_halves, &VectorKernels::rope_adjacent}) {
        std::vector<float> expected = numbers.any_row(static_cast<std::size_t>(dims) + 5);
        std::vector<float> found = expected;
        (kVectorsReference.*rope)(angles.cos(19), angles.sin(19), expected);
        (kernels.*rope)(angles.cos(19), angles.sin(19), found);
        expect_same(found, expected);
      }
    }
  });
}

}  // namespace
}  // namespace outrider

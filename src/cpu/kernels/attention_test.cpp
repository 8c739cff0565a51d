// Every instruction set's attention kernels against the reference table: bits, for ragged sizes,
// few and many queries, and extreme values.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "cpu/kernels/attention_kernels.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/numbers_test.h"
#include "numerics/half.h"

namespace outrider {
namespace {

using testing::expect_same;
using testing::kInfinity;
using testing::kNan;
using testing::Numbers;

// body(kernels) for every table that can run here.
void for_each_isa(const std::function<void(const AttentionKernels&)>& body) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name(isa));
    body(kernels(isa).attention);
  }
}

// Rows longer than they look, so that strides count.
template <typename T>
struct Matrix {
  Matrix(std::size_t rows, std::size_t columns) : Matrix(rows, columns, [] { return T(0); }) {}
  template <typename Next>
  Matrix(std::size_t rows, std::size_t columns, Next next)
      : rows(rows), columns(columns), stride(columns + 5), x(rows * stride) {
    for (T& value : x) value = next();
  }
  MatrixView<T> view() { return {x.data(), rows, columns, stride}; }
  std::size_t rows, columns, stride;
  std::vector<T> x;
};

Matrix<float> ordinary(std::size_t rows, std::size_t columns, Numbers& numbers) {
  return {rows, columns, [&] { return numbers.ordinary(); }};
}

std::vector<Half> to_halves(const std::vector<float>& x) {
  std::vector<Half> halves;
  for (const float value : x) halves.push_back(float_to_half(value));
  return halves;
}

template <typename T>
void expect_equal(const std::vector<T>& found, const std::vector<T>& expected) {
  ASSERT_EQ(found, expected);
}

// Of n queries: max, sum and out.
struct State {
  State(std::size_t n, std::size_t value_dim, Numbers& numbers)
      : max(numbers.ordinary_row(n)),
        sum(numbers.ordinary_row(n)),
        out(ordinary(n, value_dim, numbers)) {}
  AttentionSums view() { return {max.data(), sum.data(), out.view()}; }
  std::vector<float> max, sum;
  Matrix<float> out;
};

// Channels of keys, or of values: no kernel sees both.
constexpr std::size_t kHeadDims[] = {1, 7, 8, 17, 20, 33, 64, 80, 100, 128, 192, 200, 256};
constexpr std::size_t kHeadDimsQ8[] = {32, 64, 96, 128, 160, 192, 256};
constexpr std::size_t kQueryCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 24};

Places some_places(Numbers& numbers) {
  if (numbers.below(3) == 0) return {0, kTile};
  const std::size_t begin = numbers.below(kTile);
  return {static_cast<std::uint8_t>(begin),
          static_cast<std::uint8_t>(begin + 1 + numbers.below(kTile - begin))};
}

// Scores beside `places` may be anything.
void expect_same_in(Places places, Matrix<float>& found, Matrix<float>& expected) {
  for (std::size_t q = 0; q < found.rows; ++q) {
    expect_same(found.view()[q].subspan(places.begin, places.end - places.begin),
                expected.view()[q].subspan(places.begin, places.end - places.begin));
    const std::span<float> beyond = std::span(found.x).subspan(q * found.stride + kTile, 5);
    expect_same(beyond, std::span(expected.x).subspan(q * found.stride + kTile, 5));
  }
}

TEST(AttentionKernels, ScoresGiveTheReferencesBits) {
  for_each_isa([](const AttentionKernels& kernels) {
    Numbers numbers(4);
    for (const std::size_t key_dim : kHeadDims) {
      SCOPED_TRACE(key_dim);
      std::vector<float> keys = numbers.ordinary_row(key_dim * kTile);
      keys[numbers.below(keys.size())] = kNan;
      keys[numbers.below(keys.size())] = 65504;
      const std::vector<Half> halves = to_halves(keys);
      for (const std::size_t n : kQueryCounts) {
        SCOPED_TRACE(n);
        Matrix<float> queries = ordinary(n, key_dim, numbers);
        Matrix<float> found = ordinary(n, kTile, numbers), expected = found;
        const Places places = some_places(numbers);
        kAttentionReference.scores_f16(queries.view(), halves.data(), places, nullptr,
                                       expected.view());
        kernels.scores_f16(queries.view(), halves.data(), places, halves.data(), found.view());
        expect_same_in(places, found, expected);
        kAttentionReference.scores_f32(queries.view(), keys.data(), places, nullptr,
                                       expected.view());
        kernels.scores_f32(queries.view(), keys.data(), places, nullptr, found.view());
        expect_same_in(places, found, expected);
      }
    }
  });
}

TEST(AttentionKernels, ScoresOfQ8GiveTheReferencesBits) {
  for_each_isa([](const AttentionKernels& kernels) {
    Numbers numbers(5);
    for (const std::size_t key_dim : kHeadDimsQ8) {
      SCOPED_TRACE(key_dim);
      const auto eight = [&] {  // the ends of the range often
        return static_cast<std::int8_t>(numbers.below(4)
                                            ? static_cast<int>(numbers.below(255)) - 127
                                            : (numbers.below(2) ? 127 : -127));
      };
      std::vector<std::uint8_t> q(key_dim * kTile);
      for (std::uint8_t& value : q) value = static_cast<std::uint8_t>(eight() + 128);
      std::vector<Half> d = to_halves(numbers.ordinary_row(key_dim / 32 * kTile));
      d[numbers.below(d.size())] = float_to_half(kNan);
      const KeysQ8 keys{q.data(), d.data()};
      for (const std::size_t n : kQueryCounts) {
        SCOPED_TRACE(n);
        Matrix<std::int8_t> query(n, key_dim, eight);
        Matrix<float> scales = ordinary(n, key_dim / 32, numbers);
        Matrix<std::int32_t> bias(n, key_dim / 32);
        for (std::size_t i = 0; i < n; ++i)
          for (std::size_t c = 0; c < key_dim; ++c)
            bias.view()[i][c / 32] -= 128 * query.view()[i][c];
        const QuantizedQueries queries{query.view(), scales.view(), bias.view()};
        Matrix<float> found = ordinary(n, kTile, numbers), expected = found;
        const Places places = some_places(numbers);
        kAttentionReference.scores_q8_0(queries, keys, places, nullptr, expected.view());
        kernels.scores_q8_0(queries, keys, places, &keys, found.view());
        expect_same_in(places, found, expected);
      }
    }
  });
}

TEST(AttentionKernels, SoftmaxGivesTheReferencesBits) {
  for_each_isa([](const AttentionKernels& kernels) {
    Numbers numbers(6);
    for (int round = 0; round < 300; ++round) {
      const std::size_t n = 1 + numbers.below(20);
      const float spread = round % 3 == 0 ? 60.0f : 1.0f;
      Matrix<float> expected(n, kTile, [&] { return spread * numbers.ordinary(); });
      std::vector<Places> present;
      for (std::size_t q = 0; q < n; ++q) {
        present.push_back(numbers.below(10) ? some_places(numbers) : Places{7, 7});
        if (round % 5 == 0) expected.view()[q][numbers.below(kTile)] = kNan;
        if (round % 7 == 0) expected.view()[q][numbers.below(kTile)] = kInfinity;
        if (round % 11 == 0) expected.view()[q][numbers.below(kTile)] = -kInfinity;
      }
      Matrix<float> found = expected;
      State of_found(n, 1, numbers), of_expected(n, 1, numbers);
      const auto softcap = round % 2 ? std::optional(5.0f) : std::nullopt;
      kAttentionReference.softmax(0.37f, softcap, present, expected.view(), of_expected.view());
      kernels.softmax(0.37f, softcap, present, found.view(), of_found.view());
      expect_same(found.x, expected.x);
      expect_same(of_found.max, of_expected.max);
      expect_same(of_found.sum, of_expected.sum);
    }
  });
}

// Weights of zero stand beside values that are NaN: they must not meet. Where a weight is not zero,
// NaN must show.
TEST(AttentionKernels, ValuesGiveTheReferencesBits) {
  for_each_isa([](const AttentionKernels& kernels) {
    Numbers numbers(7);
    for (const std::size_t value_dim : kHeadDims) {
      SCOPED_TRACE(value_dim);
      for (const std::size_t n : kQueryCounts) {
        SCOPED_TRACE(n);
        for (const std::size_t count : {std::size_t{1}, 1 + numbers.below(kTile), kTile}) {
          SCOPED_TRACE(count);
          std::vector<float> values = numbers.ordinary_row(value_dim * kTile);
          Matrix<float> p = ordinary(n, kTile, numbers), found = ordinary(n, value_dim, numbers);
          for (float& weight : p.x) weight = std::fabs(weight);
          for (const bool hidden : {true, false}) {
            const std::size_t key = numbers.below(count);
            values[key * value_dim + numbers.below(value_dim)] = kNan;
            for (std::size_t q = 0; q < n; ++q)
              if (hidden || q % 3 == 0) p.view()[q][key] = 0;
            const std::vector<Half> halves = to_halves(values);
            Matrix<float> expected = found;
            std::vector<float> of_old = numbers.ordinary_row(n), of_later = numbers.ordinary_row(n);
            const MergeFactors factors{of_old.data(), of_later.data()}, *const none = nullptr;
            for (const MergeFactors* merge : {none, &factors}) {
              kAttentionReference.values_f16(p.view(), halves.data(), count, nullptr, merge,
                                             expected.view());
              kernels.values_f16(p.view(), halves.data(), count, halves.data(), merge,
                                 found.view());
              expect_same(found.x, expected.x);
              kAttentionReference.values_f32(p.view(), values.data(), count, nullptr, merge,
                                             expected.view());
              kernels.values_f32(p.view(), values.data(), count, nullptr, merge, found.view());
              expect_same(found.x, expected.x);
            }
            if (hidden) {
              for (const float value : found.x) ASSERT_FALSE(std::isnan(value));
            }
          }
        }
      }
    }
  });
}

TEST(AttentionKernels, SoftmaxOfQ8GivesTheReferencesBits) {
  for_each_isa([](const AttentionKernels& kernels) {
    Numbers numbers(8);
    for (int round = 0; round < 300; ++round) {
      SCOPED_TRACE(round);
      const std::size_t n = 1 + numbers.below(8);
      std::vector<float> scales = numbers.ordinary_row(kTile);
      for (float& scale : scales) scale = std::fabs(scale);
      if (round % 3 == 0) scales[numbers.below(kTile)] = kNan;
      if (round % 5 == 0) std::ranges::fill(scales, 0.0f);
      std::vector<Places> present;
      for (std::size_t q = 0; q < n; ++q)
        present.push_back(numbers.below(10) ? some_places(numbers) : Places{7, 7});
      Matrix<float> scores(n, kTile, [&] { return 40 * numbers.ordinary(); });
      if (round % 13 == 0) scores.view()[n - 1][numbers.below(kTile)] = kNan;
      if (round % 11 == 0) {
        // The likeliest key's value is zero and all others weigh little: R lies about 2^-110.
        const std::size_t key = numbers.below(kTile);
        const float from = 72 + numbers.below(8);
        for (float& score : scores.x) score = -(from + std::fabs(numbers.ordinary())) / 0.37f;
        for (std::size_t q = 0; q < n; ++q) scores.view()[q][key] = 0;
        scales[key] = 0;
      }
      const std::vector<Half> d = to_halves(scales);
      for (const std::optional<float> softcap : {std::optional<float>(), std::optional(50.0f)}) {
        Matrix<float> p = scores, expected_p = scores;
        Matrix<std::int16_t> found(n, kTile), expected = found;
        std::vector<float> factors(n), expected_factors(n);
        State of_found(n, 32, numbers), of_expected = of_found;
        kAttentionReference.softmax_q8_0(0.37f, softcap, present, expected_p.view(), d.data(),
                                         expected.view(), expected_factors.data(),
                                         of_expected.view());
        kernels.softmax_q8_0(0.37f, softcap, present, p.view(), d.data(), found.view(),
                             factors.data(), of_found.view());
        expect_equal(found.x, expected.x);
        expect_same(factors, expected_factors);
        expect_same(of_found.max, of_expected.max);
        expect_same(of_found.sum, of_expected.sum);
      }
    }
  });
}

TEST(AttentionKernels, ValuesOfQ8GiveTheReferencesBits) {
  for_each_isa([](const AttentionKernels& kernels) {
    Numbers numbers(9);
    for (const std::size_t value_dim : kHeadDimsQ8) {
      SCOPED_TRACE(value_dim);
      std::vector<std::int8_t> values(value_dim * kTile);
      for (std::int8_t& value : values)
        value = static_cast<std::int8_t>(
            numbers.below(4) ? static_cast<int>(numbers.below(255)) - 127 : 127);
      for (const std::size_t n : kQueryCounts) {
        SCOPED_TRACE(n);
        const Places places = some_places(numbers);
        Matrix<std::int16_t> weights(n, kTile);
        for (std::size_t q = 0; q < n; ++q)
          for (std::size_t j = places.begin; j < places.end; ++j)
            weights.view()[q][j] =
                static_cast<std::int16_t>(numbers.below(4) ? numbers.below(16384) : 16383);
        Matrix<std::int32_t> found(
            n, value_dim, [&] { return static_cast<std::int32_t>(numbers.below(1 << 20)); });
        Matrix<std::int32_t> expected = found;
        kAttentionReference.values_q8_0(weights.view(), values.data(), places, expected.view());
        kernels.values_q8_0(weights.view(), values.data(), places, found.view());
        expect_equal(found.x, expected.x);
        const std::vector<float> factors = numbers.any_row(n);
        Matrix<float> widened = ordinary(n, value_dim, numbers), expected_widened = widened;
        kAttentionReference.widen(factors.data(), expected.view(), expected_widened.view());
        kernels.widen(factors.data(), found.view(), widened.view());
        expect_same(widened.x, expected_widened.x);
        std::vector<float> of_old = numbers.any_row(n), of_later = numbers.any_row(n);
        const MergeFactors merge{of_old.data(), of_later.data()};
        kAttentionReference.values_q8_0_merged(weights.view(), values.data(), places, nullptr,
                                               factors.data(), merge, expected_widened.view());
        kernels.values_q8_0_merged(weights.view(), values.data(), places, values.data(),
                                   factors.data(), merge, widened.view());
        expect_same(widened.x, expected_widened.x);
      }
    }
  });
}

TEST(AttentionKernels, MergeAndDivideGiveTheReferencesBits) {
  for_each_isa([](const AttentionKernels& kernels) {
    Numbers numbers(10);
    for (const std::size_t value_dim : kHeadDims) {
      SCOPED_TRACE(value_dim);
      for (const std::size_t n : {1, 5, 16, 17, 48}) {
        SCOPED_TRACE(n);
        State found(n, value_dim, numbers), later(n, value_dim, numbers);
        for (std::size_t q = 0; q < n; ++q) {
          if (q % 5 == 1) later.max[q] = -kInfinity;  // nothing was present
          if (q % 5 == 2) found.max[q] = AttentionSums::kNoMax;
          if (q % 5 == 3) later.max[q] += 200;
        }
        State expected = found;
        kAttentionReference.merge(later.view(), expected.view());
        kernels.merge(later.view(), found.view());
        expect_same(found.max, expected.max);
        expect_same(found.sum, expected.sum);
        expect_same(found.out.x, expected.out.x);
        std::vector<float> out(value_dim), expected_out(value_dim);
        kAttentionReference.divide(expected.view(), n - 1, expected_out);
        kernels.divide(found.view(), n - 1, out);
        expect_same(out, expected_out);
      }
    }
  });
}

// Before any key, what a tile brings is taken as it is; a tile without keys changes nothing.
TEST(AttentionKernels, MergeKnowsNoKeys) {
  for_each_isa([](const AttentionKernels& kernels) {
    Numbers numbers(11);
    for (const float max : {0.0f, 80.0f, -3e38f, 3e38f}) {
      State sums(3, 40, numbers), tile(3, 40, numbers);
      std::ranges::fill(tile.max, max);
      std::ranges::fill(sums.max, AttentionSums::kNoMax);
      std::ranges::fill(sums.sum, 0.0f);
      std::ranges::fill(sums.out.x, 0.0f);
      kernels.merge(tile.view(), sums.view());
      for (std::size_t q = 0; q < 3; ++q) expect_same(sums.out.view()[q], tile.out.view()[q]);
      expect_same(sums.max, tile.max);
      expect_same(sums.sum, tile.sum);
      const State before = sums;
      std::ranges::fill(tile.max, -kInfinity);
      std::ranges::fill(tile.sum, 0.0f);
      kernels.merge(tile.view(), sums.view());
      expect_same(sums.out.x, before.out.x);
      expect_same(sums.sum, before.sum);
    }
  });
}

TEST(AttentionKernels, WhatTheCacheKeepsIsTheReferences) {
  for_each_isa([](const AttentionKernels& kernels) {
    Numbers numbers(12);
    for (const std::size_t n : {1, 7, 8, 9, 16, 17, 33, 64, 100, 257}) {
      SCOPED_TRACE(n);
      const std::vector<float> x = numbers.any_row(n);
      std::vector<float> floats(n), expected_floats(n);
      kAttentionReference.clamp_to_float(x, expected_floats.data());
      kernels.clamp_to_float(x, floats.data());
      expect_same(floats, expected_floats);
      std::vector<Half> halves(n + 1, 7), expected_halves = halves;
      kAttentionReference.clamp_to_half(x, expected_halves.data());
      kernels.clamp_to_half(x, halves.data());
      for (std::size_t i = 0; i <= n; ++i)  // the element past the end is not touched
        ASSERT_TRUE(testing::same(half_to_float(halves[i]), half_to_float(expected_halves[i])));
    }
    for (const std::size_t group : {32, 64, 96, 256}) {
      SCOPED_TRACE(group);
      for (int round = 0; round < 200; ++round) {
        const float size = std::exp2(static_cast<float>(numbers.below(60)) - 40);
        std::vector<float> x =
            round % 4 ? numbers.ordinary_row(2 * group) : numbers.any_row(2 * group);
        for (float& value : x) value *= size;
        std::vector<std::int8_t> q(x.size()), expected_q(x.size());
        Half d[2], expected_d[2];
        kAttentionReference.keep_q8_0(x, group, expected_q.data(), expected_d);
        kernels.keep_q8_0(x, group, q.data(), d);
        expect_equal(q, expected_q);
        for (const int i : {0, 1})
          ASSERT_TRUE(testing::same(half_to_float(d[i]), half_to_float(expected_d[i])));
      }
    }
  });
}

}  // namespace
}  // namespace outrider

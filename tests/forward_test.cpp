// A forward pass computes the model that its spec describes: against plain loops in double that
// share nothing with it but the spec. Weights are F32, so only rounding and the cache's precision
// differ.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cpu/backend.h"
#include "numerics/dequantize.h"
#include "support/tiny_model.h"

namespace outrider {
namespace {

using testing::tiny_model;
using testing::TinyOptions;
using Vector = std::vector<double>;

Vector values_of(const TensorView& tensor) {
  std::vector<float> values(tensor.elements());
  dequantize(tensor.type, tensor.bytes, values);
  return {values.begin(), values.end()};
}

class PlainModel {
 public:
  explicit PlainModel(const Model& model) : model_(model), spec_(model.spec) {}

  // Logits after each token.
  std::vector<Vector> logits(const std::vector<Token>& tokens) const {
    const Vector embedding = values_of(*model_.weight(Role::token_embedding));
    const auto width = static_cast<std::size_t>(spec_.embedding);
    std::vector<Vector> x;
    for (const Token token : tokens) {
      const auto first = embedding.begin() + static_cast<std::ptrdiff_t>(token * width);
      x.emplace_back(first, first + static_cast<std::ptrdiff_t>(width));
      for (double& value : x.back()) value *= spec_.embedding_scale;
    }
    for (int layer = 0; layer < spec_.n_layers(); ++layer) {
      for (const Operation& operation : spec_.layers[layer].operations) {
        std::vector<Vector> in = x;
        for (Vector& row : in) norm(operation.pre_norm, layer, row);
        const auto* attention = std::get_if<Attention>(&operation.body);
        std::vector<Vector> out = attention ? attend(*attention, layer, in)
                                            : mlp(std::get<Mlp>(operation.body), layer, in);
        for (std::size_t i = 0; i < x.size(); ++i) {
          norm(operation.post_norm, layer, out[i]);
          for (std::size_t d = 0; d < width; ++d) x[i][d] += out[i][d];
        }
      }
    }
    const bool tied = model_.weight(Role::output) == nullptr;
    for (Vector& row : x) {
      norm(Role::output_norm, 0, row);
      row = multiply(tied ? Role::token_embedding : Role::output, 0, row);
    }
    return x;
  }

 private:
  Vector multiply(Role role, int layer, const Vector& x) const {
    const TensorView& tensor = *model_.weight(role, layer);
    const Vector weights = values_of(tensor);
    Vector y(static_cast<std::size_t>(tensor.rows()));
    for (std::size_t o = 0; o < y.size(); ++o)
      for (std::size_t k = 0; k < x.size(); ++k) y[o] += weights[o * x.size() + k] * x[k];
    return y;
  }

  void norm(std::optional<Role> role, int layer, std::span<double> x) const {
    if (!role) return;
    const Vector weights = values_of(*model_.weight(*role, layer));
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double root = std::sqrt(squares / static_cast<double>(x.size()) + spec_.norm_eps);
    for (std::size_t d = 0; d < x.size(); ++d) x[d] *= weights[d] / root;
  }

  static void turn(const Rope& rope, std::size_t position, std::span<double> head) {
    const std::size_t half = rope.frequencies.size();
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * rope.frequencies[i];
      const bool adjacent = rope.pairing == RopePairing::adjacent;
      double& a = head[adjacent ? 2 * i : i];
      double& b = head[adjacent ? 2 * i + 1 : i + half];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = turned;
    }
  }

  // One of q, k and v of every row.
  std::vector<Vector> heads_of(const Attention& attention, int layer, const std::vector<Vector>& in,
                               Role weights, Role bias, std::optional<Role> head_norm) const {
    std::vector<Vector> out;
    for (std::size_t i = 0; i < in.size(); ++i) {
      out.push_back(multiply(weights, layer, in[i]));
      Vector& all = out.back();
      if (attention.has_bias) {
        const Vector added = values_of(*model_.weight(bias, layer));
        for (std::size_t d = 0; d < all.size(); ++d) all[d] += added[d];
      }
      if (!head_norm) continue;  // values have neither norm nor rope
      const auto key_dim = static_cast<std::size_t>(attention.key_dim);
      for (std::size_t first = 0; first < all.size(); first += key_dim) {
        const std::span<double> head = std::span(all).subspan(first, key_dim);
        if (attention.qk_norm != HeadNorm::none) norm(head_norm, layer, head);
        turn(*attention.rope, i, head);
      }
    }
    return out;
  }

  std::vector<Vector> attend(const Attention& attention, int layer,
                             const std::vector<Vector>& in) const {
    const auto q = heads_of(attention, layer, in, Role::attention_q, Role::attention_q_bias,
                            Role::attention_q_norm);
    const auto k = heads_of(attention, layer, in, Role::attention_k, Role::attention_k_bias,
                            Role::attention_k_norm);
    const auto v = heads_of(attention, layer, in, Role::attention_v, Role::attention_v_bias, {});
    const auto key_dim = static_cast<std::size_t>(attention.key_dim);
    const auto value_dim = static_cast<std::size_t>(attention.value_dim);
    std::vector<Vector> out;
    for (std::size_t i = 0; i < in.size(); ++i) {
      Vector mixed(static_cast<std::size_t>(attention.n_heads) * value_dim);
      for (int head = 0; head < attention.n_heads; ++head) {
        const std::size_t kv_head = head / (attention.n_heads / attention.n_kv_heads);
        const std::span<double> of_head = std::span(mixed).subspan(head * value_dim, value_dim);
        double sum = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          if (attention.window && i - j >= static_cast<std::size_t>(*attention.window)) continue;
          double score = 0;
          for (std::size_t d = 0; d < key_dim; ++d)
            score += q[i][head * key_dim + d] * k[j][kv_head * key_dim + d];
          const double weight = std::exp(score * attention.scale);
          sum += weight;
          for (std::size_t d = 0; d < value_dim; ++d)
            of_head[d] += weight * v[j][kv_head * value_dim + d];
        }
        for (double& value : of_head) value /= sum;
      }
      out.push_back(multiply(Role::attention_output, layer, mixed));
    }
    return out;
  }

  std::vector<Vector> mlp(const Mlp& mlp, int layer, const std::vector<Vector>& in) const {
    std::vector<Vector> out;
    for (const Vector& x : in) {
      Vector gate = multiply(Role::mlp_gate, layer, x);
      const Vector up = multiply(Role::mlp_up, layer, x);
      for (std::size_t d = 0; d < gate.size(); ++d) {
        const double g = gate[d];
        const double root = std::sqrt(2 / std::acos(-1.0));
        gate[d] = up[d] * (mlp.activation == Activation::silu
                               ? g / (1 + std::exp(-g))
                               : g / 2 * (1 + std::tanh(root * (g + 0.044715 * g * g * g))));
      }
      out.push_back(multiply(Role::mlp_down, layer, gate));
    }
    return out;
  }

  const Model& model_;
  const ModelSpec& spec_;
};

void expect_logits(const Model& model, CacheType cache_type, const std::vector<Token>& tokens,
                   const std::vector<Vector>& expected, double tolerance) {
  const auto backend = load_cpu(model, {.context = 128, .cache_type = cache_type, .n_threads = 2});
  const SequenceId sequence = backend->begin();
  std::vector<Row> rows;
  std::vector<ChoiceRequest> requests;
  for (int i = 0; i < static_cast<int>(tokens.size()); ++i) {
    rows.push_back({.sequence = sequence, .token = tokens[i], .position = i, .wants_logits = true});
    if (i > 0) rows[i].parent = EarlierRow{i - 1};
    requests.push_back({.row = i, .filters = {.temperature = 0}, .wants_logits = true});
  }
  const std::vector<Choice> found = backend->choose(backend->forward(rows), requests);
  double squares = 0, count = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ASSERT_EQ(found[i].logits.size(), expected[i].size());
    double largest = 0;
    for (std::size_t id = 0; id < expected[i].size(); ++id) {
      squares += std::pow(found[i].logits[id] - expected[i][id], 2);
      largest = std::max(largest, std::fabs(expected[i][id]));
      ++count;
    }
    EXPECT_GT(largest, 5);
  }
  EXPECT_LT(std::sqrt(squares / count), tolerance);
}

TEST(Forward, ComputesWhatTheSpecSays) {
  const TinyOptions cases[] = {
      {.family = "llama", .types = {TensorType::f32}, .embedding = 64},
      {.family = "qwen2", .types = {TensorType::f32}, .embedding = 64, .tied_output = false},
      // Seven layers, one of which attends beyond the window of 24.
      {.family = "gemma3", .types = {TensorType::f32}, .n_layers = 7, .embedding = 64},
      // Keys and values of different lengths, in 8 bits and not.
      {.family = "llama",
       .types = {TensorType::f32},
       .embedding = 64,
       .key_dim = 64,
       .value_dim = 32},
      {.family = "qwen2",
       .types = {TensorType::f32},
       .embedding = 64,
       .key_dim = 26,
       .value_dim = 51},
      {.family = "gemma3",
       .types = {TensorType::f32},
       .n_layers = 7,
       .embedding = 64,
       .key_dim = 32,
       .value_dim = 96},
  };
  for (const TinyOptions& options : cases) {
    SCOPED_TRACE(fmt::format("{} key_dim {} value_dim {}", options.family,
                             options.key_dim.value_or(32), options.value_dim.value_or(32)));
    const Model model = tiny_model(options);
    std::vector<Token> tokens;
    for (int i = 0; i < 70; ++i) tokens.push_back(i * i * 7 % 256);
    const std::vector<Vector> expected = PlainModel(model).logits(tokens);

    for (const auto& [cache_type, tolerance] :
         {std::pair(CacheType::f32, 1e-4), std::pair(CacheType::f16, 0.02),
          std::pair(CacheType::q8_0, 0.3)}) {
      SCOPED_TRACE(static_cast<int>(cache_type));
      expect_logits(model, cache_type, tokens, expected, tolerance);
    }
  }
}

}  // namespace
}  // namespace outrider

#include "support/tiny_head.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "numerics/half.h"
#include "runtime/drafter_registry.h"
#include "sampling/fake_tokenizer.h"

namespace outrider::testing {
namespace {

constexpr int kHeadHeads = 4, kHeadKvHeads = 2, kHeadDim = 32;

struct HeadInMemory {
  std::vector<std::vector<std::byte>> tensors;
  Checkpoint checkpoint;
};

class TinyFile {
 public:
  TinyFile(const char* name, std::uint64_t seed, TensorType type)
      : file_(std::make_shared<HeadInMemory>()), random_(seed), type_(type) {
    file_->checkpoint.metadata = Metadata(name);
  }

  template <typename Fill>
  void add(const std::string& name, TensorType type, std::vector<std::int64_t> shape,
           const Fill& fill) {
    TensorView view{.name = name, .type = type, .shape = std::move(shape), .bytes = {}};
    const auto n = static_cast<std::size_t>(view.elements());
    std::vector<std::byte> bytes(n * traits(type).block_bytes);
    for (std::size_t i = 0; i < n; ++i) fill(i, &bytes[i * traits(type).block_bytes]);
    file_->tensors.push_back(std::move(bytes));
    view.bytes = file_->tensors.back();
    file_->checkpoint.tensor_index[name] = file_->checkpoint.tensors.size();
    file_->checkpoint.tensors.push_back(std::move(view));
  }
  void weights(const std::string& name, std::vector<std::int64_t> shape, double mean,
               double deviation) {
    std::normal_distribution<float> normal(static_cast<float>(mean), static_cast<float>(deviation));
    add(name, type_, std::move(shape), [&](std::size_t, std::byte* into) {
      const float value = normal(random_);
      const std::uint16_t half = float_to_half(value);
      CHECK(type_ == TensorType::f32 || type_ == TensorType::f16);
      if (type_ == TensorType::f32) std::memcpy(into, &value, sizeof(value));
      if (type_ == TensorType::f16) std::memcpy(into, &half, sizeof(half));
    });
  }
  void matrix(const std::string& name, std::int64_t columns, std::int64_t rows) {
    weights(name, {columns, rows}, 0, 1 / std::sqrt(static_cast<double>(columns)));
  }

  std::shared_ptr<const Checkpoint> checkpoint() const { return {file_, &file_->checkpoint}; }

 private:
  std::shared_ptr<HeadInMemory> file_;
  std::mt19937_64 random_;
  TensorType type_;
};

std::shared_ptr<const HeadToLoad> to_load(Head head, const char* kind_name) {
  const DrafterKind& kind = *parse_draft(kind_name, "").at(0).kind;
  const FakeTokenizer tokenizer(
      std::vector<std::string>(static_cast<std::size_t>(head.model.spec.vocabulary), "x"));
  LoadOptions load = kind.head_options(head, tokenizer, {{"--draft-quantize", "off"}});
  return std::make_shared<const HeadToLoad>(HeadToLoad{std::move(head.model), std::move(load)});
}

}  // namespace

Head tiny_head(const Model& target, const TinyHeadOptions& options) {
  TinyFile file("tiny head", options.seed, options.type);
  const std::int64_t width = target.spec.embedding, ffn = 2 * width;
  const auto matrix = [&](const std::string& name, std::int64_t columns, std::int64_t rows) {
    file.matrix(name, columns, rows);
  };
  const auto norm = [&](const std::string& name) { file.weights(name, {width}, 1, 0.3); };
  matrix("fc.weight", width * std::ssize(options.taps), width);
  norm("norm.weight");
  if (options.rows > 0) {
    matrix("lm_head.weight", width, options.rows);
    file.add("d2t", TensorType::i64, {options.rows}, [&](std::size_t row, std::byte* into) {
      // Every other token, then the rest from the end.
      const auto token = static_cast<std::int64_t>(2 * row < 256 ? 2 * row : 2 * row - 255);
      const std::int64_t apart = token - static_cast<std::int64_t>(row);
      std::memcpy(into, &apart, sizeof(apart));
    });
  }
  for (int layer = 0; layer < options.n_layers; ++layer) {
    const std::string prefix = fmt::format("layers.{}.", layer);
    const std::int64_t in = layer == 0 ? 2 * width : width;
    norm(prefix + "input_layernorm.weight");
    if (layer == 0) norm(prefix + "hidden_norm.weight");
    matrix(prefix + "self_attn.q_proj.weight", in, kHeadHeads * kHeadDim);
    matrix(prefix + "self_attn.k_proj.weight", in, kHeadKvHeads * kHeadDim);
    matrix(prefix + "self_attn.v_proj.weight", in, kHeadKvHeads * kHeadDim);
    matrix(prefix + "self_attn.o_proj.weight", kHeadHeads * kHeadDim, width);
    norm(prefix + "post_attention_layernorm.weight");
    matrix(prefix + "mlp.gate_proj.weight", width, ffn);
    matrix(prefix + "mlp.up_proj.weight", width, ffn);
    matrix(prefix + "mlp.down_proj.weight", ffn, width);
  }
  std::vector<int> inputs;  // ids as speculators means them
  for (const int tap : options.taps) inputs.push_back(tap + 1);
  const nlohmann::json config = {{"speculators_model_type", "eagle3"},
                                 {"norm_before_residual", options.norm_before_residual},
                                 {"norm_output", options.norm_output},
                                 {"eagle_aux_hidden_state_layer_ids", inputs},
                                 {"transformer_layer_config",
                                  {{"hidden_size", width},
                                   {"intermediate_size", ffn},
                                   {"num_attention_heads", kHeadHeads},
                                   {"num_key_value_heads", kHeadKvHeads},
                                   {"head_dim", kHeadDim},
                                   {"num_hidden_layers", options.n_layers},
                                   {"rms_norm_eps", 1e-6},
                                   {"rope_theta", 10000.0}}}};
  return interpret_head(file.checkpoint(), config, target);
}

std::shared_ptr<const HeadToLoad> tiny_head_to_load(const Model& target,
                                                    const TinyHeadOptions& options) {
  return to_load(tiny_head(target, options), "eagle=tiny");
}

std::shared_ptr<const HeadToLoad> tiny_eagle1_to_load(const Model& target) {
  TinyFile file("tiny head", 1, TensorType::f16);
  const std::int64_t width = target.spec.embedding, ffn = 2 * width;
  file.matrix("fc.weight", 2 * width, width);
  file.weights("fc.bias", {width}, 0, 0.3);
  file.matrix("layers.0.self_attn.q_proj.weight", width, kHeadHeads * kHeadDim);
  file.matrix("layers.0.self_attn.k_proj.weight", width, kHeadKvHeads * kHeadDim);
  file.matrix("layers.0.self_attn.v_proj.weight", width, kHeadKvHeads * kHeadDim);
  file.matrix("layers.0.self_attn.o_proj.weight", kHeadHeads * kHeadDim, width);
  file.weights("layers.0.post_attention_layernorm.weight", {width}, 1, 0.3);
  file.matrix("layers.0.mlp.gate_proj.weight", width, ffn);
  file.matrix("layers.0.mlp.up_proj.weight", width, ffn);
  file.matrix("layers.0.mlp.down_proj.weight", ffn, width);
  const nlohmann::json config = {{"hidden_size", width},
                                 {"intermediate_size", ffn},
                                 {"num_attention_heads", kHeadHeads},
                                 {"num_key_value_heads", kHeadKvHeads},
                                 {"head_dim", kHeadDim}};
  return to_load(interpret_head(file.checkpoint(), config, target), "eagle=tiny");
}

std::shared_ptr<const HeadToLoad> tiny_block_to_load(const Model& target, int rank) {
  constexpr int kLayers = 2;
  TinyFile file("tiny head", 1, TensorType::f16);
  const std::int64_t width = target.spec.embedding, ffn = 2 * width;
  const auto norm = [&](const std::string& name) { file.weights(name, {width}, 1, 0.3); };
  file.matrix("fc.weight", 2 * width, width);
  norm("hidden_norm.weight");
  norm("norm.weight");
  file.matrix("lm_head.weight", width, target.spec.vocabulary);
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = fmt::format("layers.{}.", layer);
    norm(prefix + "input_layernorm.weight");
    file.matrix(prefix + "self_attn.q_proj.weight", width, kHeadHeads * kHeadDim);
    file.matrix(prefix + "self_attn.k_proj.weight", width, kHeadKvHeads * kHeadDim);
    file.matrix(prefix + "self_attn.v_proj.weight", width, kHeadKvHeads * kHeadDim);
    file.matrix(prefix + "self_attn.o_proj.weight", kHeadHeads * kHeadDim, width);
    norm(prefix + "post_attention_layernorm.weight");
    file.matrix(prefix + "mlp.gate_proj.weight", width, ffn);
    file.matrix(prefix + "mlp.up_proj.weight", width, ffn);
    file.matrix(prefix + "mlp.down_proj.weight", ffn, width);
  }
  if (rank > 0) {
    file.weights("markov_head.markov_w1.weight", {rank, target.spec.vocabulary}, 0, 1);
    file.weights("markov_head.markov_w2.weight", {rank, target.spec.vocabulary}, 0, 1);
    file.matrix("confidence_head.proj.weight", width + rank, 1);
    file.weights("confidence_head.proj.bias", {1}, 0, 1);
  }
  const nlohmann::json config = {{"hidden_size", width},
                                 {"intermediate_size", ffn},
                                 {"num_attention_heads", kHeadHeads},
                                 {"num_key_value_heads", kHeadKvHeads},
                                 {"head_dim", kHeadDim},
                                 {"num_hidden_layers", kLayers},
                                 {"target_layer_ids", {0, 2}},
                                 {"block_size", 5},
                                 {"mask_token_id", 3}};
  const char* const kind = rank > 0 ? "dspark=tiny" : "dflash=tiny";
  return to_load(interpret_head(file.checkpoint(), config, target), kind);
}

std::shared_ptr<const HeadToLoad> tiny_medusa_to_load(const Model& target, int n_heads) {
  TinyFile file("tiny heads", 1, TensorType::f16);
  const std::int64_t width = target.spec.embedding;
  for (int head = 0; head < n_heads; ++head) {
    file.matrix(fmt::format("{}.0.linear.weight", head), width, width);
    file.weights(fmt::format("{}.0.linear.bias", head), {width}, 0, 0.3);
    file.matrix(fmt::format("{}.1.weight", head), width, target.spec.vocabulary);
  }
  return to_load(interpret_head(file.checkpoint(), {}, target), "medusa=tiny");
}

}  // namespace outrider::testing

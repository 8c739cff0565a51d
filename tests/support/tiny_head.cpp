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

  void norm(const std::string& name, std::int64_t width, double mean = 1) {
    weights(name, {width}, mean, 0.3);
  }

  // A decoder layer but for the norm before its attention. columns: of what attention multiplies;
  // q_rows: of the queries' matrix.
  void layer(const std::string& prefix, std::int64_t width, std::int64_t columns,
             std::int64_t q_rows = kHeadHeads * kHeadDim, double norm_mean = 1) {
    const std::int64_t ffn = 2 * width;
    matrix(prefix + "self_attn.q_proj.weight", columns, q_rows);
    matrix(prefix + "self_attn.k_proj.weight", columns, kHeadKvHeads * kHeadDim);
    matrix(prefix + "self_attn.v_proj.weight", columns, kHeadKvHeads * kHeadDim);
    matrix(prefix + "self_attn.o_proj.weight", kHeadHeads * kHeadDim, width);
    norm(prefix + "post_attention_layernorm.weight", width, norm_mean);
    matrix(prefix + "mlp.gate_proj.weight", width, ffn);
    matrix(prefix + "mlp.up_proj.weight", width, ffn);
    matrix(prefix + "mlp.down_proj.weight", ffn, width);
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

// The keys of config.json that say how large a layer() is.
nlohmann::json layer_config(std::int64_t width) {
  return {{"hidden_size", width},
          {"intermediate_size", 2 * width},
          {"num_attention_heads", kHeadHeads},
          {"num_key_value_heads", kHeadKvHeads},
          {"head_dim", kHeadDim}};
}

}  // namespace

Head tiny_head(const Model& target, const TinyHeadOptions& options) {
  TinyFile file("tiny head", options.seed, options.type);
  const std::int64_t width = target.spec.embedding;
  file.matrix("fc.weight", width * std::ssize(options.taps), width);
  file.norm("norm.weight", width);
  if (options.rows > 0) {
    file.matrix("lm_head.weight", width, options.rows);
    file.add("d2t", TensorType::i64, {options.rows}, [&](std::size_t row, std::byte* into) {
      // Every other token, then the rest from the end.
      const auto token = static_cast<std::int64_t>(2 * row < 256 ? 2 * row : 2 * row - 255);
      const std::int64_t apart = token - static_cast<std::int64_t>(row);
      std::memcpy(into, &apart, sizeof(apart));
    });
  }
  for (int layer = 0; layer < options.n_layers; ++layer) {
    const std::string prefix = fmt::format("layers.{}.", layer);
    file.norm(prefix + "input_layernorm.weight", width);
    if (layer == 0) file.norm(prefix + "hidden_norm.weight", width);
    file.layer(prefix, width, layer == 0 ? 2 * width : width);
  }
  std::vector<int> inputs;  // ids as speculators means them
  for (const int tap : options.taps) inputs.push_back(tap + 1);
  nlohmann::json layer = layer_config(width);
  layer.update({{"num_hidden_layers", options.n_layers}, {"rms_norm_eps", 1e-6}});
  return interpret_head(file.checkpoint(),
                        {{"speculators_model_type", "eagle3"},
                         {"norm_before_residual", options.norm_before_residual},
                         {"norm_output", options.norm_output},
                         {"eagle_aux_hidden_state_layer_ids", inputs},
                         {"transformer_layer_config", layer}},
                        target);
}

std::shared_ptr<const HeadToLoad> tiny_head_to_load(const Model& target,
                                                    const TinyHeadOptions& options) {
  return to_load(tiny_head(target, options), "eagle=tiny");
}

std::shared_ptr<const HeadToLoad> tiny_eagle1_to_load(const Model& target) {
  TinyFile file("tiny head", 1, TensorType::f16);
  const std::int64_t width = target.spec.embedding;
  file.matrix("fc.weight", 2 * width, width);
  file.weights("fc.bias", {width}, 0, 0.3);
  file.layer("layers.0.", width, width);
  return to_load(interpret_head(file.checkpoint(), layer_config(width), target), "eagle=tiny");
}

std::shared_ptr<const HeadToLoad> tiny_mtp_to_load(const Model& target) {
  TinyFile file("tiny head", 1, TensorType::f16);
  const std::int64_t width = target.spec.embedding;
  const auto norm = [&](const std::string& name) { file.norm(name, width, 0); };
  file.matrix("mtp.fc.weight", 2 * width, width);
  norm("mtp.pre_fc_norm_embedding.weight");
  norm("mtp.pre_fc_norm_hidden.weight");
  norm("mtp.norm.weight");
  norm("mtp.layers.0.input_layernorm.weight");
  file.layer("mtp.layers.0.", width, width, 2 * kHeadHeads * kHeadDim, 0);
  nlohmann::json config = layer_config(width);
  config["partial_rotary_factor"] = 0.25;
  return to_load(interpret_head(file.checkpoint(), config, target), "mtp=tiny");
}

std::shared_ptr<const HeadToLoad> tiny_block_to_load(const Model& target,
                                                     const TinyBlockOptions& options) {
  constexpr int kLayers = 2;
  const int rank = options.rank;
  TinyFile file("tiny head", 1, TensorType::f16);
  const std::int64_t width = target.spec.embedding;
  file.matrix("fc.weight", 2 * width, width);
  file.norm("hidden_norm.weight", width);
  file.norm("norm.weight", width);
  file.matrix("lm_head.weight", width, target.spec.vocabulary);
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string prefix = fmt::format("layers.{}.", layer);
    file.norm(prefix + "input_layernorm.weight", width);
    file.layer(prefix, width, width);
  }
  if (rank > 0) {
    file.weights("markov_head.markov_w1.weight", {rank, target.spec.vocabulary}, 0, 1);
    file.weights("markov_head.markov_w2.weight", {rank, target.spec.vocabulary}, 0, 1);
  }
  if (rank > 0 || options.has_confidence) {
    file.matrix("confidence_head.proj.weight", width + rank, 1);
    file.weights("confidence_head.proj.bias", {1}, 0, 1);
  }
  if (options.remembers) {
    file.matrix("markov_head.joint_proj.weight", 2 * rank + width, 3 * rank);
    file.weights("markov_head.joint_proj.bias", {3 * rank}, 0, 0.3);
  }
  nlohmann::json config = layer_config(width);
  config.update({{"num_hidden_layers", kLayers},
                 {"target_layer_ids", {0, target.spec.n_layers() - 1}},
                 {"block_size", 5},
                 {"mask_token_id", 3}});
  if (options.window) {
    config["sliding_window"] = *options.window;
    config["layer_types"] = {"sliding_attention", "full_attention"};
  }
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

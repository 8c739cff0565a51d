#include "model/head_layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>

#include "base/bytes.h"
#include "base/error.h"
#include "cache/cache.h"
#include "numerics/rope.h"

namespace outrider {

std::string_view layer_tensor_name(Role role) {
  switch (role) {
    case Role::attention_norm: return "input_layernorm.weight";
    case Role::attention_q: return "self_attn.q_proj.weight";
    case Role::attention_k: return "self_attn.k_proj.weight";
    case Role::attention_v: return "self_attn.v_proj.weight";
    case Role::attention_q_bias: return "self_attn.q_proj.bias";
    case Role::attention_k_bias: return "self_attn.k_proj.bias";
    case Role::attention_v_bias: return "self_attn.v_proj.bias";
    case Role::attention_q_norm: return "self_attn.q_norm.weight";
    case Role::attention_k_norm: return "self_attn.k_norm.weight";
    case Role::attention_output: return "self_attn.o_proj.weight";
    case Role::attention_output_bias: return "self_attn.o_proj.bias";
    case Role::mlp_norm: return "post_attention_layernorm.weight";
    case Role::mlp_gate: return "mlp.gate_proj.weight";
    case Role::mlp_up: return "mlp.up_proj.weight";
    case Role::mlp_down: return "mlp.down_proj.weight";
    default: return {};
  }
}

Rope read_head_rope(const HeadConfig& config, int dims, RopePairing pairing,
                    HeadVariants variants) {
  constexpr double kBaseUsual = 10000, kBaseMax = 1e12;
  const auto parameters = config.object("rope_parameters");
  const auto scaling = parameters ? parameters : config.object("rope_scaling");
  std::optional<double> base = config.number("rope_theta", 1, kBaseMax);
  if (!base && parameters) base = parameters->number("rope_theta", 1, kBaseMax);
  int turning = dims;
  for (const HeadConfig& place : {config, parameters.value_or(config)}) {
    // Gemma 3's and others'.
    for (const char* kind : {"full_attention", "sliding_attention"})
      if (place.has(kind))
        throw Error(
            "{}: {} gives each kind of layer a rope of its own, which is not supported in "
            "this version",
            config.origin(), place.name(kind));
    const auto part = place.number("partial_rotary_factor", 0, 1);
    if (!part || *part == 1) continue;
    turning = static_cast<int>(dims * *part);
    if (variants == HeadVariants::none)
      throw Error("{}: {} is {}, which is not supported in this version; expected 1",
                  config.origin(), place.name("partial_rotary_factor"), *part);
    if (turning < 2 || turning % 2 != 0)
      throw Error("{}: {} is {}: of {} channels {} would turn, expected an even number from 2 on",
                  config.origin(), place.name("partial_rotary_factor"), *part, dims, turning);
  }
  Rope rope{.pairing = pairing,
            .frequencies = rope_frequencies(turning, base.value_or(kBaseUsual)),
            .longer = {}};
  if (!scaling) return rope;
  const char* const type_key = scaling->has("rope_type") ? "rope_type" : "type";
  const std::string type = scaling->text(type_key).value_or("default");
  if (type == "default" || type == "none") return rope;
  const double factor = scaling->number("factor", 1, 1e6).value_or(1);
  if (type == "linear") {
    for (double& frequency : rope.frequencies) frequency /= factor;
  } else if (type == "llama3") {
    // Long waves are slowed down by the factor, short ones kept, with a ramp between.
    const double low = scaling->number("low_freq_factor", 1e-3, 1e6).value_or(1);
    const double high = scaling->number("high_freq_factor", 1e-3, 1e6).value_or(4);
    if (high <= low)
      throw Error("{}: {} is {}, expected more than {}, which is {}", config.origin(),
                  scaling->name("high_freq_factor"), high, scaling->name("low_freq_factor"), low);
    const double length = scaling->required_integer("original_max_position_embeddings", 1, 1 << 24);
    for (double& frequency : rope.frequencies) {
      const double turns = length * frequency / (2 * std::numbers::pi);
      const double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
      frequency *= kept + (1 - kept) / factor;
    }
  } else if (type == "yarn") {
    rope.frequencies =
        yarn_frequencies(turning, base.value_or(kBaseUsual),
                         {.factor = factor,
                          .trained_length = scaling->required_integer(
                              "original_max_position_embeddings", 1, 1 << 24),
                          .turns_kept = scaling->number("beta_fast", 1e-3, 1e6).value_or(32),
                          .turns_slowed = scaling->number("beta_slow", 1e-3, 1e6).value_or(1)});
    rope.magnitude =
        scaling->number("attention_factor", 0.01, 100).value_or(yarn_magnitude(factor));
  } else {
    throw Error(
        "{}: {} is \"{}\", which is not supported in this version; expected default, "
        "linear, llama3 or yarn",
        config.origin(), scaling->name(type_key), printable(type));
  }
  return rope;
}

Attention read_head_attention(const HeadConfig& config, RopePairing pairing,
                              const HeadTensors& tensors, const HeadTensorNames& names,
                              HeadVariants variants) {
  const auto has = [&](Role role) {
    const std::string name = names(role, 0);
    return !name.empty() && tensors.find(name);
  };
  Attention attention;
  attention.n_heads = config.required_integer("num_attention_heads", 1, 4096);
  attention.n_kv_heads = config.integer("num_key_value_heads", 1, 4096).value_or(attention.n_heads);
  if (attention.n_heads % attention.n_kv_heads != 0)
    throw Error("{}: {} is {}, but {} is {}, expected a divisor of it", config.origin(),
                config.name("num_attention_heads"), attention.n_heads,
                config.name("num_key_value_heads"), attention.n_kv_heads);
  const int hidden = config.required_integer("hidden_size", 1, 1 << 20);
  const auto given = config.integer("head_dim", 2, kHeadDimMax);
  if (!given && hidden % attention.n_heads != 0)
    throw Error("{}: {} is missing, and {} is {}, which {} heads cannot share evenly",
                config.origin(), config.name("head_dim"), config.name("hidden_size"), hidden,
                attention.n_heads);
  attention.key_dim = given.value_or(hidden / attention.n_heads);
  if (attention.key_dim % 2 != 0 || attention.key_dim > kHeadDimMax)
    throw Error("{}: heads have {} channels, expected an even number up to {}", config.origin(),
                attention.key_dim, kHeadDimMax);
  attention.value_dim = attention.key_dim;
  attention.scale = 1 / std::sqrt(static_cast<double>(attention.key_dim));
  attention.first_key = 1;
  attention.rope = read_head_rope(config, attention.key_dim, pairing, variants);
  attention.has_bias = has(Role::attention_q_bias);
  attention.has_output_bias = has(Role::attention_output_bias);
  if (has(Role::attention_q_norm)) attention.qk_norm = HeadNorm::shared;
  const TensorView* const query = tensors.find(names(Role::attention_q, 0));
  attention.has_gate = variants == HeadVariants::qwen && query &&
                       query->rows() == 2 * std::int64_t{attention.n_heads} * attention.key_dim;
  return attention;
}

int read_head_layers(const HeadConfig& config, const Model& target) {
  const int n_layers = config.integer("num_hidden_layers", 1, kMaxLayers).value_or(1);
  if (n_layers + target.spec.n_layers() > kMaxLayers)
    throw Error("{}: {} is {}; with the {} of {} these are more than the {} supported",
                config.origin(), config.name("num_hidden_layers"), n_layers, target.spec.n_layers(),
                target.checkpoint->metadata.origin(), kMaxLayers);
  return n_layers;
}

float read_head_epsilon(const HeadConfig& config) {
  return static_cast<float>(config.number("rms_norm_eps", 1e-30, 1).value_or(1e-6));
}

Mlp read_head_mlp(const HeadConfig& config) {
  const std::string activation = config.text("hidden_act").value_or("silu");
  if (activation != "silu")
    throw Error("{}: {} is \"{}\", which is not supported in this version; expected \"silu\"",
                config.origin(), config.name("hidden_act"), printable(activation));
  return {.width = config.required_integer("intermediate_size", 1, 1 << 24)};
}

namespace {

// Queries and gates of one tensor: for each head its rows of both, one after the other.
void take_queries_and_gates(HeadTensors& tensors, int layer, const std::string& name,
                            std::int64_t columns, const Attention& attention) {
  const std::int64_t n_rows = std::int64_t{attention.n_heads} * attention.key_dim;
  const TensorView& both = *tensors.checked(name, {columns, 2 * n_rows});
  const std::size_t head_bytes =
      both.bytes.size() / 2 / static_cast<std::size_t>(attention.n_heads);
  for (const Role role : {Role::attention_q, Role::attention_gate}) {
    std::vector<std::byte> bytes;
    bytes.reserve(both.bytes.size() / 2);
    for (std::size_t at = role == Role::attention_q ? 0 : head_bytes; at < both.bytes.size();
         at += 2 * head_bytes) {
      const auto head = both.bytes.subspan(at, head_bytes);
      bytes.insert(bytes.end(), head.begin(), head.end());
    }
    tensors.set(role, layer,
                tensors.keep({both.name, both.type, {columns, n_rows}, {}}, std::move(bytes)));
  }
}

}  // namespace

void take_head_layer(HeadTensors& tensors, const ModelSpec& spec, int layer,
                     const HeadTensorNames& names) {
  const auto take = [&](Role role, const std::vector<std::int64_t>& shape) {
    tensors.take(role, layer, names(role, layer), shape);
  };
  const std::int64_t width = spec.embedding;
  for (const Operation& operation : spec.layers[static_cast<std::size_t>(layer)].operations) {
    if (operation.pre_norm) take(*operation.pre_norm, {width});
    if (const auto* mlp = std::get_if<Mlp>(&operation.body)) {
      take(Role::mlp_gate, {width, mlp->width});
      take(Role::mlp_up, {width, mlp->width});
      take(Role::mlp_down, {mlp->width, width});
      continue;
    }
    const Attention& attention = std::get<Attention>(operation.body);
    const std::int64_t in = operation.reads_token ? 2 * width : width;
    const std::int64_t q = std::int64_t{attention.n_heads} * attention.key_dim;
    const std::int64_t kv = std::int64_t{attention.n_kv_heads} * attention.key_dim;
    if (attention.has_gate)
      take_queries_and_gates(tensors, layer, names(Role::attention_q, layer), in, attention);
    else
      take(Role::attention_q, {in, q});
    take(Role::attention_k, {in, kv});
    take(Role::attention_v, {in, kv});
    if (attention.has_bias) {
      take(Role::attention_q_bias, {q});
      take(Role::attention_k_bias, {kv});
      take(Role::attention_v_bias, {kv});
    }
    if (attention.qk_norm == HeadNorm::shared) {
      take(Role::attention_q_norm, {attention.key_dim});
      take(Role::attention_k_norm, {attention.key_dim});
    }
    take(Role::attention_output, {q, width});
    if (attention.has_output_bias) take(Role::attention_output_bias, {width});
  }
}

namespace {

std::vector<Token> tokens_of(const TensorView& table, const std::string& origin,
                             const Model& target, bool is_absolute) {
  const int vocabulary = target.spec.vocabulary;
  std::vector<Token> tokens;
  std::vector<bool> is_named(static_cast<std::size_t>(vocabulary));
  for (std::int64_t row = 0; row < table.elements(); ++row) {
    std::int64_t token;
    std::memcpy(&token, &table.bytes[static_cast<std::size_t>(row) * sizeof(token)], sizeof(token));
    const bool overflows = token > vocabulary || token < -row;
    if (!is_absolute && !overflows) token += row;
    if (token < 0 || token >= vocabulary)
      throw Error(
          "{}: d2t names token {} for row {}, but the vocabulary of {} has {}; the head is for "
          "another model",
          origin, token, row, target.checkpoint->metadata.origin(), vocabulary);
    if (is_named[static_cast<std::size_t>(token)])
      throw Error("{}: d2t names token {} twice; the head is damaged", origin, token);
    is_named[static_cast<std::size_t>(token)] = true;
    tokens.push_back(static_cast<Token>(token));
  }
  return tokens;
}

}  // namespace

std::int64_t count_outputs(const HeadTensors& tensors, const Model& target) {
  const TensorView* const table = tensors.find("d2t");
  return table ? table->elements() : target.spec.vocabulary;
}

std::vector<Token> read_draft_tokens(const HeadTensors& tensors, const HeadConfig& config,
                                     const Model& target, std::string_view output,
                                     bool is_absolute) {
  const TensorView* const table = tensors.find("d2t");
  const std::int64_t n = count_outputs(tensors, target);
  const bool has_output = tensors.find(output) != nullptr;
  if (const auto draft = config.integer("draft_vocab_size", 1, 1 << 24);
      draft && *draft != n && has_output)
    throw Error("{}: {} is {}, but {}", config.origin(), config.name("draft_vocab_size"), *draft,
                table ? fmt::format("d2t names {} tokens", n)
                      : fmt::format("there is no d2t, and the target has {} tokens", n));
  if (!table) return {};
  if (table->type != TensorType::i64 || table->shape.size() != 1 || table->elements() == 0)
    throw Error("{}: tensor d2t is {} [{}], expected a list of I64", tensors.origin(),
                traits(table->type).name, fmt::join(table->shape, ", "));
  std::vector<Token> tokens = tokens_of(*table, tensors.origin(), target, is_absolute);
  bool is_whole = std::ssize(tokens) == target.spec.vocabulary;
  for (std::size_t row = 0; is_whole && row < tokens.size(); ++row)
    is_whole = tokens[row] == static_cast<Token>(row);
  if (is_whole) return {};
  if (!has_output)
    throw Error("{}: d2t names {} tokens, but tensor {}, which has their rows, is missing",
                tensors.origin(), tokens.size(), output);
  return tokens;
}

}  // namespace outrider

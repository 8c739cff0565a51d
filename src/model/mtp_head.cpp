// Layers that were trained with their model to predict a token more (multi-token prediction,
// Gloeckle et al. 2024, arXiv:2404.19737; DeepSeek-AI 2024, arXiv:2412.19437), in the layouts of
// MiMo, Qwen, DeepSeek, speculators and, in GGUF, llama.cpp.

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "cache/cache.h"
#include "model/gguf_head.h"
#include "model/head_config.h"
#include "model/head_layer.h"
#include "model/head_readers.h"
#include "model/head_tensors.h"
#include "numerics/dequantize.h"

namespace outrider {
namespace {

// What a layout calls the tensors; those of the layer follow `layer`. "{}" stands for the model's
// number of layers.
struct Layout {
  std::string_view producer;
  std::string_view own;  // what the names of all its tensors begin with; others are the model's
  std::string_view fusion, layer, token_norm, state_norm, output_norm;
  std::string_view embedding = "", output = "";  // where it may have its own
  bool is_token_first = true;
  bool state_is_normed = true;      // the model's, after its last norm
  bool norms_are_less_one = false;  // files have w - 1
  // The layer is like the model's last one and has GGUF's names; the model's output norm may stand
  // for its own.
  bool is_gguf = false;
};
constexpr Layout kLayouts[] = {
    // vLLM's model, by MiMo's makers, gives the layer the model's state before the norm, other
    // programs the normed one.
    {.producer = "MiMo",
     .own = "model.mtp_layers.",
     .fusion = "model.mtp_layers.0.input_proj.weight",
     .layer = "model.mtp_layers.0.",
     .token_norm = "model.mtp_layers.0.token_layernorm.weight",
     .state_norm = "model.mtp_layers.0.hidden_layernorm.weight",
     .output_norm = "model.mtp_layers.0.final_layernorm.weight",
     .is_token_first = false,
     .state_is_normed = false},
    // MiMo's names in the opposite order, and a file of its own.
    {.producer = "speculators",
     .own = "",
     .fusion = "mtp_layers.0.input_proj.weight",
     .layer = "mtp_layers.0.",
     .token_norm = "mtp_layers.0.token_layernorm.weight",
     .state_norm = "mtp_layers.0.hidden_layernorm.weight",
     .output_norm = "mtp_layers.0.final_layernorm.weight",
     .embedding = "embed_tokens.weight",
     .output = "lm_head.weight",
     .state_is_normed = false},
    {.producer = "Qwen",
     .own = "mtp.",
     .fusion = "mtp.fc.weight",
     .layer = "mtp.layers.0.",
     .token_norm = "mtp.pre_fc_norm_embedding.weight",
     .state_norm = "mtp.pre_fc_norm_hidden.weight",
     .output_norm = "mtp.norm.weight",
     .norms_are_less_one = true},
    {.producer = "DeepSeek",
     .own = "model.layers.{}.",
     .fusion = "model.layers.{}.eh_proj.weight",
     .layer = "model.layers.{}.",
     .token_norm = "model.layers.{}.enorm.weight",
     .state_norm = "model.layers.{}.hnorm.weight",
     .output_norm = "model.layers.{}.shared_head.norm.weight",
     .embedding = "model.layers.{}.embed_tokens.weight",
     .output = "model.layers.{}.shared_head.head.weight"},
    {.producer = "llama.cpp",
     .own = "blk.{}.",
     .fusion = "blk.{}.nextn.eh_proj.weight",
     .layer = "blk.{}.",
     .token_norm = "blk.{}.nextn.enorm.weight",
     .state_norm = "blk.{}.nextn.hnorm.weight",
     .output_norm = "blk.{}.nextn.shared_head_norm.weight",
     .embedding = "blk.{}.nextn.embed_tokens.weight",
     .output = "blk.{}.nextn.shared_head_head.weight",
     .is_gguf = true},
};
// Other layers than an attention and an MLP that every row goes through, by what they are called in
// the layer.
struct OtherLayer {
  std::string_view tensor, what;
};
constexpr OtherLayer kOtherLayers[] = {
    {"mlp.experts.0.gate_proj.weight", "a mixture of experts"},
    {"mlp.experts.gate_up_proj", "a mixture of experts"},
    {"mlp.gate.weight", "a mixture of experts"},
    {"self_attn.kv_a_proj_with_mqa.weight", "multi-head latent attention"},
    {"linear_attn.in_proj_qkvz.weight", "linear attention"},
    {"linear_attn.in_proj_qkv.weight", "linear attention"},
    // In GGUF.
    {"ffn_gate_inp.weight", "a mixture of experts"},
    {"attn_kv_a_mqa.weight", "multi-head latent attention"},
    {"ssm_conv1d.weight", "linear attention"},
};
// Which states are meant, where a file says so: in a config.json, and in GGUF.
constexpr const char* kReadsNormed = "mtp_reads_normed_state";
constexpr const char* kFeedsBackNormed = "mtp_feeds_back_normed_state";
constexpr GgufKey kGgufKeys[] = {
    {"nextn.reads_normed_state", kReadsNormed},
    {"nextn.feeds_back_normed_state", kFeedsBackNormed},
};

bool has_fusion(const Checkpoint& file, const Layout& layout) {
  const std::size_t hole = layout.fusion.find("{}");
  if (hole == layout.fusion.npos) return file.find(layout.fusion) != nullptr;
  return std::ranges::any_of(file.tensors, [&](const TensorView& tensor) {
    return tensor.name.starts_with(layout.fusion.substr(0, hole)) &&
           tensor.name.ends_with(layout.fusion.substr(hole + 2));
  });
}

const Layout* layout_of(const Checkpoint& file) {
  const auto found =
      std::ranges::find_if(kLayouts, [&](const Layout& each) { return has_fusion(file, each); });
  return found == std::end(kLayouts) ? nullptr : &*found;
}

HeadConfig whole_config(const Checkpoint& file, const Layout& layout,
                        const nlohmann::json& config) {
  const Metadata& metadata = file.metadata;
  if (!layout.is_gguf) return config_beside(metadata.origin(), config);
  return config_of_gguf(metadata, metadata.require_string("general.architecture"), kGgufKeys);
}

// The part of a config.json that describes the layer.
HeadConfig layer_config(const HeadConfig& whole) {
  for (const char* key : {"transformer_layer_config", "text_config"})
    if (const auto part = whole.object(key)) return *part;
  return whole;
}

class MtpReader {
 public:
  MtpReader(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
            const Model& target)
      : file_(*checkpoint),
        layout_(*layout_of(file_)),
        target_(target),
        whole_config_(whole_config(file_, layout_, config)),
        config_(layer_config(whole_config_)),
        tensors_(head_, file_, target_, "a layer for multi-token prediction") {
    head_.kind = "MTP";
    head_.producer = layout_.producer;
    head_.model.checkpoint = std::move(checkpoint);
  }

  Head read() {
    check_place();
    refuse_other_layers();
    check_count();
    spec() = layout_.is_gguf ? spec_like_target() : spec_of_config();
    tensors_.begin();
    const std::int64_t width = spec().embedding;
    take(Role::feature_fusion, layout_.fusion, {2 * width, width});
    take(Role::token_norm, layout_.token_norm, {width});
    take(Role::feature_norm, layout_.state_norm, {width});
    if (layout_.is_gguf)
      tensors_.take_or_share(Role::output_norm, name_of(layout_.output_norm), {width});
    else
      take(Role::output_norm, layout_.output_norm, {width});
    const std::vector<std::int64_t> table{width, spec().vocabulary};
    tensors_.take_or_share(Role::token_embedding, name_of(layout_.embedding), table);
    tensors_.take_or_share(Role::output, name_of(layout_.output), table);
    if (layout_.is_gguf)
      find_layer();
    else
      take_head_layer(tensors_, spec(), 0, names());
    if (norms_are_less_one()) add_one_to_norms();
    check_nothing_else();
    read_states();
    return std::move(head_);
  }

 private:
  ModelSpec& spec() { return head_.model.spec; }
  EagleInput& eagle() { return *spec().eagle; }
  const std::string& origin() const { return tensors_.origin(); }
  std::string name_of(std::string_view pattern) const {
    return fmt::format(fmt::runtime(pattern), target_.spec.n_layers());
  }
  HeadTensorNames names() const {
    return [this](Role role, int) {
      const std::string_view name = layer_tensor_name(role);
      return name.empty() ? std::string() : name_of(layout_.layer) + std::string(name);
    };
  }

  void take(Role role, std::string_view pattern, const std::vector<std::int64_t>& shape) {
    tensors_.take(role, 0, name_of(pattern), shape);
  }
  void refuse_other_layers() const {
    const std::string layer = name_of(layout_.layer);
    for (const auto& [tensor, what] : kOtherLayers)
      if (tensors_.find(layer + std::string(tensor)))
        throw Error("{}: tensor {}{}: the layer has {}, which is not supported in this version",
                    origin(), layer, tensor, what);
  }

  // Names say how many layers the model has.
  void check_place() const {
    const std::string fusion = name_of(layout_.fusion);
    if (tensors_.find(fusion)) return;
    throw Error(
        "{}: its layer for prediction follows another number of layers than the {} of {} (there is "
        "no tensor {}); the head is for another model",
        origin(), target_.spec.n_layers(), target_.checkpoint->metadata.origin(), fusion);
  }

  void check_count() const {
    if (target_.spec.n_layers() >= kMaxLayers)
      throw Error("{}: {} has {} layers; beside a layer for prediction at most {} are supported",
                  origin(), target_.checkpoint->metadata.origin(), target_.spec.n_layers(),
                  kMaxLayers - 1);
  }

  ModelSpec spec_of_config() const {
    const int width = config_.required_integer("hidden_size", 1, 1 << 20);
    if (width != target_.spec.embedding)
      throw Error("{}: {} is {}, but the width of {} is {}; the head is for another model",
                  config_.origin(), config_.name("hidden_size"), width,
                  target_.checkpoint->metadata.origin(), target_.spec.embedding);
    const Attention attention =
        read_head_attention(config_, RopePairing::halves, tensors_, names(), HeadVariants::qwen);
    const Mlp mlp = read_head_mlp(config_);
    return spec_with({{{.pre_norm = Role::attention_norm, .body = attention, .post_norm = {}},
                       {.pre_norm = Role::mlp_norm, .body = mlp, .post_norm = {}}}},
                     read_head_epsilon(config_));
  }

  ModelSpec spec_like_target() const {
    const std::string architecture = file_.metadata.require_string("general.architecture");
    if (architecture != target_.spec.family)
      throw Error(
          "{}: architecture \"{}\", but that of {} is \"{}\"; the head is for another model",
          origin(), printable(architecture), target_.checkpoint->metadata.origin(),
          target_.spec.family);
    LayerSpec layer = target_.spec.layers.back();
    for (Operation& operation : layer.operations)
      if (auto* attention = std::get_if<Attention>(&operation.body)) attention->first_key = 1;
    return spec_with(std::move(layer), target_.spec.norm_eps);
  }

  // What a model does before and after its layers the head does, too.
  ModelSpec spec_with(LayerSpec layer, float norm_eps) const {
    ModelSpec spec = target_.spec;
    spec.family = "mtp";
    spec.norm_eps = norm_eps;
    spec.layers = {std::move(layer)};
    spec.eagle = EagleInput{.taps = {target_.spec.n_layers() - (layout_.state_is_normed ? 0 : 1)},
                            .tap_width = spec.embedding,
                            .fused = layout_.is_token_first ? EagleInput::Fused::token_and_state
                                                            : EagleInput::Fused::state_and_token,
                            .feature_norm = EagleInput::Norm::whole,
                            .state_is_normed = true};
    return spec;
  }

  void find_layer() {
    try {
      find_layers(head_.model, target_.spec.n_layers());
    } catch (const Error& error) {
      // It speaks of models and their metadata.
      throw Error("{} (as its layer for prediction is like those of {})", error.what(),
                  target_.checkpoint->metadata.origin());
    }
    for (const TensorView* tensor : head_.model.weights)
      if (tensor) tensors_.ignore(tensor->name);
  }

  // speculators' layers are those of the model's own classes.
  bool norms_are_less_one() const {
    if (layout_.norms_are_less_one) return true;
    const std::string type = config_.text("model_type").value_or("");
    return layout_.producer == "speculators" &&
           (type.starts_with("qwen3_next") || type.starts_with("qwen3_5"));
  }

  // Files have w - 1 for what norms multiply by.
  void add_one_to_norms() {
    for (const Role role :
         {Role::token_norm, Role::feature_norm, Role::output_norm, Role::attention_norm,
          Role::mlp_norm, Role::attention_q_norm, Role::attention_k_norm}) {
      const TensorView* const norm = head_.model.weight(role);
      if (!norm) continue;
      std::vector<float> weights(static_cast<std::size_t>(norm->elements()));
      dequantize(norm->type, norm->bytes, weights);
      for (float& weight : weights) weight += 1;
      const auto bytes = std::as_bytes(std::span(weights));
      tensors_.set(
          role, 0,
          tensors_.keep(
              {.name = norm->name, .type = TensorType::f32, .shape = norm->shape, .bytes = {}},
              {bytes.begin(), bytes.end()}));
    }
  }

  // The file may be the whole model's, which has no d2t; of several layers the first one is read.
  bool is_own(std::string_view name) const {
    constexpr std::string_view kFirst = ".0.";
    const std::string layer = name_of(layout_.layer);
    if (layer.ends_with(kFirst) && !name.starts_with(layer) &&
        name.starts_with(layer.substr(0, layer.size() - kFirst.size() + 1)))
      return false;
    return name.starts_with(name_of(layout_.own)) || name == "d2t";
  }

  // What else the head has must be known.
  void check_nothing_else() {
    for (const TensorView& tensor : file_.tensors)
      if (!is_own(tensor.name)) tensors_.ignore(tensor.name);
    tensors_.ignore_frequencies();
    tensors_.check_nothing_else();
  }

  // Implementations differ in whether a state is taken before or after the last norm, of the model
  // and of the layer itself; the weights alone know, unless the file says so.
  void read_states() {
    const auto reads_normed = whole_config_.boolean(kReadsNormed);
    const auto feeds_back_normed = whole_config_.boolean(kFeedsBackNormed);
    const int normed = target_.spec.n_layers(), raw = normed - 1;
    if (reads_normed) eagle().taps = {*reads_normed ? normed : raw};
    if (feeds_back_normed) eagle().state_is_normed = *feeds_back_normed;
    for (const auto& [name, tap, state_is_normed] :
         {std::tuple("both states after the norm", normed, true),
          std::tuple("its own state before the norm", normed, false),
          std::tuple("the model's state before the norm", raw, true),
          std::tuple("both states before the norm", raw, false)}) {
      EagleInput other = eagle();
      if (!reads_normed) other.taps = {tap};
      if (!feeds_back_normed) other.state_is_normed = state_is_normed;
      const bool is_as_said = other.taps.at(0) == tap && other.state_is_normed == state_is_normed;
      if (is_as_said && other != eagle()) head_.other_readings.push_back({name, other});
    }
  }

  Head head_;
  const Checkpoint& file_;
  const Layout& layout_;
  const Model& target_;
  const HeadConfig whole_config_, config_;
  HeadTensors tensors_;
};

}  // namespace

bool has_prediction_layer(const Checkpoint& checkpoint) {
  return layout_of(checkpoint) != nullptr;
}

Head interpret_mtp(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
                   const Model& target) {
  return MtpReader(std::move(checkpoint), config, target).read();
}

}  // namespace outrider

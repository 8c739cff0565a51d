// The heads of EAGLE and EAGLE-2 as SafeAILab writes them: one decoder layer over the fusion of
// [token; state], whose output is at once the logits' state and the next state.

#include <optional>
#include <utility>

#include "base/error.h"
#include "model/head_config.h"
#include "model/head_layer.h"
#include "model/head_readers.h"
#include "model/head_tensors.h"

namespace outrider {
namespace {

constexpr std::string_view kFirstQuery = "layers.0.self_attn.q_proj.weight";
constexpr std::string_view kFusionOfSpeculators = "fusion_fc.weight";

std::string tensor_name(Role role, int layer) {
  const std::string_view name = layer_tensor_name(role);
  return name.empty() ? std::string() : fmt::format("layers.{}.{}", layer, name);
}

class Eagle1Reader {
 public:
  Eagle1Reader(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
               const Model& target)
      : file_(*checkpoint),
        target_(target),
        config_(config_beside(file_.metadata.origin(), config)),
        tensors_(head_, file_, target_, "an EAGLE head") {
    head_.kind = "EAGLE";
    head_.producer = "SafeAILab";
    head_.model.checkpoint = std::move(checkpoint);
  }

  Head read() {
    read_spec();
    tensors_.begin();
    const std::int64_t width = spec().embedding;
    tensors_.take(Role::feature_fusion, 0, "fc.weight", {2 * width, width});
    if (tensors_.find("fc.bias"))
      tensors_.take(Role::feature_fusion_bias, 0, "fc.bias", {width});
    else if (config_.boolean("bias") == true)
      throw Error("{}: {} is true, but tensor fc.bias is missing", config_.origin(),
                  config_.name("bias"));
    const std::vector<std::int64_t> table{width, spec().vocabulary};
    tensors_.take_or_share(Role::token_embedding, "embed_tokens.weight", table);
    tensors_.take_or_share(Role::output, "lm_head.weight", table);
    for (int layer = 0; layer < spec().n_layers(); ++layer)
      take_head_layer(tensors_, spec(), layer, tensor_name);
    tensors_.ignore_frequencies();
    tensors_.check_nothing_else();
    return std::move(head_);
  }

 private:
  ModelSpec& spec() { return head_.model.spec; }
  const std::string& target_name() const { return target_.checkpoint->metadata.origin(); }

  void read_spec() {
    const int width = config_.required_integer("hidden_size", 1, 1 << 20);
    if (width != target_.spec.embedding)
      throw Error("{}: {} is {}, but the width of {} is {}; the head is for another model",
                  config_.origin(), config_.name("hidden_size"), width, target_name(),
                  target_.spec.embedding);
    const int n_layers = read_head_layers(config_, target_);
    spec() = {.family = "eagle",
              .vocabulary = target_.spec.vocabulary,
              .embedding = width,
              .context_trained = target_.spec.context_trained,
              .has_output_norm = false,
              .norm_eps = read_head_epsilon(config_),
              .logit_scale = target_.spec.logit_scale,
              .logit_softcap = target_.spec.logit_softcap,
              .layers = {},
              .eagle = EagleInput{.taps = {target_.spec.n_layers()},
                                  .tap_width = width,
                                  .fused = EagleInput::Fused::token_and_state},
              .medusa = {},
              .block = {}};
    const Attention attention =
        read_head_attention(config_, RopePairing::halves, tensors_, tensor_name);
    const Mlp mlp = read_head_mlp(config_);
    for (int layer = 0; layer < n_layers; ++layer) {
      // The first layer reads the fusion as it is.
      const auto norm = layer == 0 ? std::optional<Role>() : Role::attention_norm;
      spec().layers.push_back({{{.pre_norm = norm, .body = attention, .post_norm = {}},
                                {.pre_norm = Role::mlp_norm, .body = mlp, .post_norm = {}}}});
    }
  }

  Head head_;
  const Checkpoint& file_;
  const Model& target_;
  const HeadConfig config_;
  HeadTensors tensors_;
};

}  // namespace

bool is_eagle1(const Checkpoint& checkpoint) {
  if (checkpoint.find(kFusionOfSpeculators)) return true;
  const TensorView* const fusion = checkpoint.find("fc.weight");
  const bool fuses_two = fusion && fusion->shape.size() == 2 && fusion->shape[0] % 2 == 0 &&
                         fusion->shape[0] / 2 == fusion->shape[1];
  return fuses_two && checkpoint.find(kFirstQuery) &&
         !checkpoint.find("layers.0.hidden_norm.weight") && !checkpoint.find("hidden_norm.weight");
}

Head interpret_eagle1(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
                      const Model& target) {
  if (checkpoint->find(kFusionOfSpeculators))
    throw Error(
        "{}: tensor {}: an EAGLE head in speculators' layout, which is not supported in this "
        "version; expected the files of SafeAILab that it was made from",
        checkpoint->metadata.origin(), kFusionOfSpeculators);
  return Eagle1Reader(std::move(checkpoint), config, target).read();
}

}  // namespace outrider

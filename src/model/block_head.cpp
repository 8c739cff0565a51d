// Heads that guess a block of tokens in one pass: DFlash's and DSpark's, in the layouts of z-lab,
// DeepSpec, SpecForge and speculators.

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "model/head_config.h"
#include "model/head_layer.h"
#include "model/head_readers.h"
#include "model/head_tensors.h"

namespace outrider {
namespace {

constexpr const char* kOutput = "lm_head.weight";
constexpr const char* kTable = "markov_head.markov_w1.weight";
constexpr const char* kGate = "markov_head.gate_proj.weight";
constexpr const char* kGateBias = "markov_head.gate_proj.bias";
constexpr const char* kConfidence = "confidence_head.proj.weight";

std::string tensor_name(Role role, int layer) {
  const std::string_view name = layer_tensor_name(role);
  return name.empty() ? std::string() : fmt::format("layers.{}.{}", layer, name);
}

class BlockReader {
 public:
  BlockReader(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
              const Model& target)
      : file_(*checkpoint),
        target_(target),
        top_(config_beside(file_.metadata.origin(), config)),
        layer_(top_.object("transformer_layer_config").value_or(top_)),
        own_(top_.object("dflash_config").value_or(top_)),
        tensors_(head_, file_, target_, "a head that guesses blocks") {
    head_.model.checkpoint = std::move(checkpoint);
  }

  Head read() {
    find_producer();
    read_spec();
    read_taps();
    head_.output_tokens = read_draft_tokens(tensors_, top_, target_, kOutput, false);
    read_tensors();
    return std::move(head_);
  }

 private:
  ModelSpec& spec() { return head_.model.spec; }
  BlockInput& block() { return *spec().block; }
  const std::string& origin() const { return tensors_.origin(); }
  const std::string& target_name() const { return target_.checkpoint->metadata.origin(); }
  bool is_by(std::string_view producer) const { return head_.producer == producer; }

  void find_producer() {
    const std::string kind = top_.text("speculators_model_type").value_or("");
    if (!kind.empty() || top_.has("transformer_layer_config"))
      head_.producer = "speculators";
    else if (own_.has("projector_type"))
      head_.producer = "SpecForge";
    else if (top_.has("dflash_config"))
      head_.producer = "z-lab";
    else
      head_.producer = "DeepSpec";
    head_.kind = is_dspark(file_) ? "DSpark" : "DFlash";
  }

  // In which object a key lies differs between versions of files.
  std::optional<int> integer(std::string_view key, int least, int most) const {
    const auto value = own_.integer(key, least, most);
    return value ? value : top_.integer(key, least, most);
  }
  int required_integer(std::string_view key, int least, int most) const {
    const auto value = integer(key, least, most);
    return value ? *value : own_.required_integer(key, least, most);
  }

  // A block's first row guesses the token after it; where no key says so, by what files of this
  // producer mean.
  bool anchor_guesses() const {
    for (const HeadConfig& place : {own_, top_})
      if (const auto given = place.boolean("sample_from_anchor")) return *given;
    if (is_by("speculators")) return top_.text("speculators_model_type") == "dspark";
    return is_by("DeepSpec") || own_.text("projector_type") == "dspark";
  }

  void read_spec() {
    const int width = layer_.required_integer("hidden_size", 1, 1 << 20);
    const int n_layers = read_head_layers(layer_, target_);
    spec().family = "block";
    spec().vocabulary = target_.spec.vocabulary;
    spec().embedding = width;
    spec().context_trained = target_.spec.context_trained;
    spec().norm_eps = read_head_epsilon(layer_);
    spec().logit_scale = target_.spec.logit_scale;
    spec().logit_softcap = target_.spec.logit_softcap;
    if (width != target_.spec.embedding &&
        !(tensors_.find("embed_tokens.weight") && tensors_.find(kOutput)))
      throw Error(
          "{}: {} is {}, but the width of {}, whose embedding and output it needs, is {}; the head "
          "is for another model",
          layer_.origin(), layer_.name("hidden_size"), width, target_name(),
          target_.spec.embedding);
    const bool has_own_embedding = tensors_.find("embed_tokens.weight") != nullptr;
    if (is_by("z-lab") || (is_by("DeepSpec") && has_own_embedding))
      spec().embedding_scale = target_.spec.embedding_scale;
    spec().block.emplace();
    block().tap_width = target_.spec.embedding;
    block().n_rows = required_integer("block_size", 2, 64);
    block().mask = required_integer("mask_token_id", 0, target_.spec.vocabulary - 1);
    block().anchor_guesses = anchor_guesses();
    // In training a window is as many positions before the anchor, for all rows.
    block().windows_end_at_anchor = is_by("speculators");
    read_successors();
    read_layers(n_layers);
  }

  // A confidence without a table would be that of the block's rows alone, which no producer has.
  void read_successors() {
    if (tensors_.find("markov_head.joint_proj.weight"))
      throw Error(
          "{}: tensor markov_head.joint_proj.weight: a Markov head that goes on from its own "
          "states (rnn) is not supported in this version",
          origin());
    const TensorView* const table = tensors_.find(kTable);
    if (!table) return;
    const std::int64_t rank = table->columns();
    if (rank < 1 || rank > spec().embedding)
      throw Error("{}: tensor {} has a rank of {}, expected 1 to {}", origin(), kTable, rank,
                  spec().embedding);
    block().successor_rank = static_cast<int>(rank);
    block().has_confidence = tensors_.find(kConfidence) != nullptr;
  }

  void read_layers(int n_layers) {
    Attention attention = read_head_attention(layer_, RopePairing::halves, tensors_, tensor_name);
    attention.first_key = 0;
    const Mlp mlp = read_head_mlp(layer_);
    const std::vector<std::string> types =
        layer_.texts("layer_types")
            .value_or(
                std::vector<std::string>(static_cast<std::size_t>(n_layers), "full_attention"));
    if (std::ssize(types) != n_layers)
      throw Error("{}: {} lists {} layers, but {} is {}", layer_.origin(),
                  layer_.name("layer_types"), types.size(), layer_.name("num_hidden_layers"),
                  n_layers);
    for (const std::string& type : types) {
      Attention own = attention;
      own.sees_block = true;
      if (type == "sliding_attention") {
        own.window = layer_.required_integer("sliding_window", 1, 1 << 24);
        own.sees_block = top_.boolean("sliding_window_non_causal").value_or(false);
      } else if (type != "full_attention") {
        throw Error(
            "{}: {} names \"{}\", which is not supported in this version; expected "
            "full_attention or sliding_attention",
            layer_.origin(), layer_.name("layer_types"), printable(type));
      }
      spec().layers.push_back({{{.pre_norm = Role::attention_norm, .body = own, .post_norm = {}},
                                {.pre_norm = Role::mlp_norm, .body = mlp, .post_norm = {}}}});
    }
  }

  void read_taps() {
    const int n_layers = target_.spec.n_layers();
    const std::int64_t columns = tensors_.find("fc.weight")->columns();
    const std::int64_t n = columns / block().tap_width;
    if (columns % block().tap_width != 0 || n < 1)
      throw Error(
          "{}: fc.weight reads {} numbers, no multiple of the width {} of {}; the head is for "
          "another model",
          origin(), columns, block().tap_width, target_name());
    std::string key = own_.name("target_layer_ids");
    std::vector<int>& taps = block().taps;
    constexpr int kMost = 1 << 20;
    if (const auto inputs = top_.integers("aux_hidden_state_layer_ids", 0, kMost)) {
      // What enters a layer is what the one before puts out.
      key = top_.name("aux_hidden_state_layer_ids");
      for (const int id : *inputs) taps.push_back(id == n_layers ? id : id - 1);
    } else if (const auto outputs = own_.integers("target_layer_ids", kEmbeddingTap, kMost)) {
      taps = *outputs;
    } else {
      taps = usual_taps(spec().n_layers(), n_layers);
    }
    if (std::ssize(taps) != n)
      throw Error(
          "{}: {} lists {} layers, but fc.weight reads {}; the head is for another model, or its "
          "config.json is another head's",
          own_.origin(), key, taps.size(), n);
    for (const int tap : taps)
      if (tap < kEmbeddingTap || tap > n_layers)
        throw Error("{}: {} lists {}, but {} has {} layers; the head is for another model",
                    own_.origin(), key, tap, target_name(), n_layers);
  }

  // z-lab's, where no key says which: one for each layer, evenly from the second to the fourth from
  // the end.
  static std::vector<int> usual_taps(int n, int n_target) {
    if (n == 1) return {n_target / 2};
    std::vector<int> taps;
    for (int i = 0; i < n; ++i)
      taps.push_back(static_cast<int>(std::nearbyint(1 + i * (n_target - 4.0) / (n - 1))));
    return taps;
  }

  void read_tensors() {
    tensors_.begin();
    const std::int64_t width = spec().embedding;
    tensors_.take(Role::feature_fusion, 0, "fc.weight",
                  {std::ssize(block().taps) * std::int64_t{block().tap_width}, width});
    tensors_.take(Role::feature_norm, 0, "hidden_norm.weight", {width});
    tensors_.take(Role::output_norm, 0, "norm.weight", {width});
    take_successors();
    take_or_share(Role::token_embedding, "embed_tokens.weight", spec().vocabulary);
    take_or_share(Role::output, kOutput, count_outputs(tensors_, target_));
    for (int layer = 0; layer < spec().n_layers(); ++layer)
      take_head_layer(tensors_, spec(), layer, tensor_name);
    for (const char* name : {"d2t", "t2d"}) tensors_.ignore(name);
    tensors_.ignore_frequencies();
    tensors_.check_nothing_else();
  }

  // DSpark's "Markov head", and its confidence.
  void take_successors() {
    const std::int64_t width = spec().embedding, rank = block().successor_rank;
    if (rank > 0) {
      tensors_.take(Role::successor_table, 0, kTable, {rank, spec().vocabulary});
      tensors_.take(Role::successor_output, 0, "markov_head.markov_w2.weight",
                    {rank, count_outputs(tensors_, target_)});
      if (tensors_.find(kGate)) {
        tensors_.take(Role::successor_gate, 0, kGate, {width + rank, rank});
        if (tensors_.find(kGateBias))
          tensors_.take(Role::successor_gate_bias, 0, kGateBias, {rank});
      }
    }
    if (!block().has_confidence) return;
    const TensorView& weights = *tensors_.find(kConfidence);
    const std::int64_t columns = weights.columns() == width ? width : width + rank;
    tensors_.take(Role::confidence, 0, kConfidence, {columns, 1});
    tensors_.take(Role::confidence_bias, 0, "confidence_head.proj.bias", {1});
  }

  void take_or_share(Role role, std::string_view name, std::int64_t rows) {
    if (tensors_.find(name))
      tensors_.take(role, 0, name, {spec().embedding, rows});
    else
      tensors_.set(role, 0, tensors_.of_target(role));
  }

  Head head_;
  const Checkpoint& file_;
  const Model& target_;
  const HeadConfig top_, layer_, own_;  // of the document, of its layers, of what DFlash adds
  HeadTensors tensors_;
};

}  // namespace

bool is_block_head(const Checkpoint& checkpoint) {
  return checkpoint.find("fc.weight") && checkpoint.find("hidden_norm.weight") &&
         checkpoint.find("layers.0.self_attn.q_proj.weight");
}

bool is_dspark(const Checkpoint& checkpoint) {
  return is_block_head(checkpoint) && checkpoint.find(kTable);
}

Head interpret_block_head(std::shared_ptr<const Checkpoint> checkpoint,
                          const nlohmann::json& config, const Model& target) {
  return BlockReader(std::move(checkpoint), config, target).read();
}

}  // namespace outrider

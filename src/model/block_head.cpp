// Heads that guess a block of tokens in one pass: DFlash's and DSpark's, in the layouts of z-lab,
// DeepSpec, SpecForge and speculators, and as llama.cpp writes them in GGUF.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "model/gguf_head.h"
#include "model/head_config.h"
#include "model/head_layer.h"
#include "model/head_readers.h"
#include "model/head_tensors.h"

namespace outrider {
namespace {

// What tensors are called that a head has once.
struct Name {
  Role role;
  const char *name, *gguf_name;  // empty: a layout has none
};
constexpr Name kNames[] = {
    {Role::token_embedding, "embed_tokens.weight", "token_embd.weight"},
    {Role::output, "lm_head.weight", "output.weight"},
    {Role::output_norm, "norm.weight", "output_norm.weight"},
    {Role::feature_fusion, "fc.weight", "fc.weight"},
    {Role::feature_norm, "hidden_norm.weight", "enc.output_norm.weight"},
    {Role::successor_table, "markov_head.markov_w1.weight", "markov_w1.weight"},
    {Role::successor_output, "markov_head.markov_w2.weight", "markov_w2.weight"},
    {Role::successor_gate, "markov_head.gate_proj.weight", ""},
    {Role::successor_gate_bias, "markov_head.gate_proj.bias", ""},
    {Role::confidence, "confidence_head.proj.weight", "conf_proj.weight"},
    {Role::confidence_bias, "confidence_head.proj.bias", "conf_proj.bias"},
};

// Successor gates of heads that remember, in safetensors.
constexpr const char *kMemoryTensor = "markov_head.joint_proj.weight",
                     *kMemoryBias = "markov_head.joint_proj.bias";

// Early files of SpecForge have what DSpark adds one level deeper.
std::string name_in(const Checkpoint& file, const std::string& name) {
  const std::string deeper = "logit_head." + name;
  return file.find(deeper) ? deeper : name;
}

std::string tensor_name(Role role, int layer, bool is_gguf) {
  for (const Name& known : kNames)
    if (known.role == role) return is_gguf ? known.gguf_name : known.name;
  if (is_gguf) return gguf_tensor_name(role, layer);
  const std::string_view name = layer_tensor_name(role);
  return name.empty() ? std::string() : fmt::format("layers.{}.{}", layer, name);
}

constexpr GgufKey kGgufKeys[] = {
    {"block_size", "block_size"},
    {"target_layers", "aux_hidden_state_layer_ids"},
    {"sample_from_anchor", "sample_from_anchor"},
    {"has_confidence_head", "enable_confidence_head"},
    {"tokenizer.ggml.mask_token_id", "mask_token_id"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.sliding_window_pattern", "sliding_window_pattern"},
    {"attention.causal", "is_causal"},
    {"attention.value_scale", "attention_value_scale"},
    {"rope.dimension_count", "rope_dimension_count"},
    {"logit_scale", "output_multiplier"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"embedding_scale", "input_embedding_scale"},
    {"hidden_activation", "hidden_act"},
};
// Numbers that would change what a head computes, but for 1.
constexpr const char* kScales[] = {"attention_value_scale", "output_multiplier"};

class BlockReader {
 public:
  BlockReader(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
              const Model& target)
      : file_(*checkpoint),
        target_(target),
        is_gguf_(is_gguf_head(file_.metadata)),
        top_(is_gguf_ ? config_of_gguf(file_.metadata, kBlockArchitecture, kGgufKeys)
                      : config_beside(file_.metadata.origin(), config)),
        layer_(top_.object("transformer_layer_config").value_or(top_)),
        own_(top_.object("dflash_config").value_or(top_)),
        tensors_(head_, file_, target_, "a head that guesses blocks") {
    head_.model.checkpoint = std::move(checkpoint);
  }

  Head read() {
    find_producer();
    read_spec();
    read_taps();
    head_.output_tokens = read_draft_tokens(tensors_, top_, target_, name(Role::output), is_gguf_);
    read_tensors();
    return std::move(head_);
  }

 private:
  ModelSpec& spec() { return head_.model.spec; }
  BlockInput& block() { return *spec().block; }
  const std::string& origin() const { return tensors_.origin(); }
  const std::string& target_name() const { return target_.checkpoint->metadata.origin(); }
  bool is_by(std::string_view producer) const { return head_.producer == producer; }
  std::string name(Role role) const { return name_in(file_, tensor_name(role, 0, is_gguf_)); }
  const TensorView* find(Role role) const { return tensors_.find(name(role)); }
  HeadTensorNames names() const {
    return [this](Role role, int layer) { return tensor_name(role, layer, is_gguf_); };
  }

  void find_producer() {
    const std::string kind = top_.text("speculators_model_type").value_or("");
    if (is_gguf_)
      head_.producer = "llama.cpp";
    else if (!kind.empty() || top_.has("transformer_layer_config"))
      head_.producer = "speculators";
    else if (place_of("projector_type").has("projector_type"))
      head_.producer = "SpecForge";
    else if (top_.has("dflash_config"))
      head_.producer = "z-lab";
    else
      head_.producer = "DeepSpec";
    head_.kind = is_dspark(file_) ? "DSpark" : "DFlash";
  }

  // In which object a key lies differs between versions of files.
  const HeadConfig& place_of(std::string_view key) const {
    return !own_.has(key) && top_.has(key) ? top_ : own_;
  }
  // The first of these keys that is there.
  std::optional<bool> boolean(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (const auto value = place_of(key).boolean(key)) return value;
    return {};
  }

  // A block's first row guesses the token after it; where no key says so, by what files of this
  // producer mean.
  bool anchor_guesses() const {
    if (const auto given = boolean({"sample_from_anchor"})) return *given;
    if (is_by("speculators")) return top_.text("speculators_model_type") == "dspark";
    if (is_gguf_) return find(Role::successor_table) != nullptr;
    return is_by("DeepSpec") || place_of("projector_type").text("projector_type") == "dspark";
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
    if (width != target_.spec.embedding && !(find(Role::token_embedding) && find(Role::output)))
      throw Error(
          "{}: {} is {}, but the width of {}, whose embedding and output it needs, is {}; the head "
          "is for another model",
          layer_.origin(), layer_.name("hidden_size"), width, target_name(),
          target_.spec.embedding);
    spec().embedding_scale = embedding_scale();
    spec().block.emplace();
    block().tap_width = target_.spec.embedding;
    const int usual_rows = is_by("speculators") ? 8 : 16;  // of their classes
    block().n_rows = place_of("block_size").integer("block_size", 2, 64).value_or(usual_rows);
    block().mask =
        place_of("mask_token_id").required_integer("mask_token_id", 0, target_.spec.vocabulary - 1);
    // In training a window is as many positions before the anchor, for all rows.
    block().windows_end_at_anchor = is_by("speculators");
    read_variants();
    read_successors();
    block().anchor_guesses = anchor_guesses();
    read_layers(n_layers);
  }

  // Where no key says otherwise, the target's rows as they are; DeepSpec's class scales its own
  // ones as the target does.
  float embedding_scale() const {
    constexpr const char* kKey = "input_embedding_scale";
    const bool is_scaled = is_by("DeepSpec") && find(Role::token_embedding);
    const double usual = is_scaled ? target_.spec.embedding_scale : 1;
    return static_cast<float>(place_of(kKey).number(kKey, -1e9, 1e9).value_or(usual));
  }

  void read_successors() {
    block().has_confidence = find(Role::confidence) != nullptr;
    if (const TensorView* const table = find(Role::successor_table)) {
      const std::int64_t rank = table->columns();
      if (rank < 1 || rank > spec().embedding)
        throw Error("{}: tensor {} has a rank of {}, expected 1 to {}", origin(),
                    name(Role::successor_table), rank, spec().embedding);
      block().successor_rank = static_cast<int>(rank);
      const std::string memory = name_in(file_, kMemoryTensor);
      block().successors_remember = tensors_.find(memory) != nullptr;
      if (block().successors_remember && 3 * rank > spec().embedding)
        throw Error("{}: tensor {} has a rank of {}, which with {} is expected to be at most {}",
                    origin(), name(Role::successor_table), rank, memory, spec().embedding / 3);
    }
    check_successors();
  }

  // config.json has to say of these parts what the tensors are.
  void check_successors() const {
    const BlockInput& found = *head_.model.spec.block;
    const auto refuse = [&](const char* key, const std::string& said, const std::string& tensors) {
      throw Error(
          "{}: {} is {}, but {}; the head is incomplete, or its config.json is another head's",
          place_of(key).origin(), place_of(key).name(key), said, tensors);
    };
    const auto there_is = [&](Role role) {
      return fmt::format("there is {} tensor {}", find(role) ? "a" : "no", name(role));
    };
    constexpr const char *kRank = "markov_rank", *kType = "markov_head_type",
                         *kConfidence = "enable_confidence_head";
    if (const auto rank = place_of(kRank).integer(kRank, 0, 1 << 20);
        rank && *rank != found.successor_rank)
      refuse(kRank, fmt::format("{}", *rank),
             *rank > 0 && found.successor_rank > 0
                 ? fmt::format("that of tensor {} is {}", name(Role::successor_table),
                               found.successor_rank)
                 : there_is(Role::successor_table));
    const char* const type = found.successors_remember    ? "rnn"
                             : find(Role::successor_gate) ? "gated"
                                                          : "vanilla";
    if (const auto said = place_of(kType).text(kType);
        said && found.successor_rank > 0 && *said != type)
      refuse(kType, fmt::format("\"{}\"", printable(*said)),
             fmt::format("the tensors are those of \"{}\"", type));
    if (const auto said = boolean({kConfidence}); said && *said != found.has_confidence)
      refuse(kConfidence, fmt::format("{}", *said), there_is(Role::confidence));
  }

  void read_layers(int n_layers) {
    const bool has_halves = boolean({"rope_is_neox_style"}).value_or(true);
    Attention attention = read_head_attention(
        layer_, has_halves ? RopePairing::halves : RopePairing::adjacent, tensors_, names());
    attention.first_key = 0;
    if (const auto turned = layer_.integer("rope_dimension_count", 1, kHeadDimMax);
        turned && *turned != attention.key_dim)
      throw Error(
          "{}: {} is {}, but heads have {} channels, which is not supported in this version",
          layer_.origin(), layer_.name("rope_dimension_count"), *turned, attention.key_dim);
    const Mlp mlp = read_head_mlp(layer_);
    const auto all_causal = boolean({"is_causal", "causal"});
    for (const bool slides : sliding_layers(n_layers)) {
      Attention own = attention;
      own.sees_block = true;
      if (slides) {
        const auto window = place_of("swa_window_size").integer("swa_window_size", 1, 1 << 24);
        own.window = window ? *window : layer_.required_integer("sliding_window", 1, 1 << 24);
        // In GGUF attention.causal alone makes blocks causal.
        own.sees_block = is_gguf_ || boolean({"sliding_window_non_causal"}).value_or(false);
      }
      if (all_causal) own.sees_block = !*all_causal;
      spec().layers.push_back({{{.pre_norm = Role::attention_norm, .body = own, .post_norm = {}},
                                {.pre_norm = Role::mlp_norm, .body = mlp, .post_norm = {}}}});
    }
  }

  std::vector<bool> sliding_layers(int n_layers) const {
    const auto n = static_cast<std::size_t>(n_layers);
    if (boolean({"use_swa"}).value_or(false)) return std::vector<bool>(n, true);
    const auto check_count = [&](const char* key, std::size_t count) {
      if (count != n)
        throw Error("{}: {} lists {} layers, but {} is {}", layer_.origin(), layer_.name(key),
                    count, layer_.name("num_hidden_layers"), n);
    };
    if (const auto pattern = layer_.booleans("sliding_window_pattern")) {
      check_count("sliding_window_pattern", pattern->size());
      return *pattern;
    }
    std::vector<bool> slides(n, false);
    const auto types = layer_.texts("layer_types");
    if (!types) return slides;
    check_count("layer_types", types->size());
    for (std::size_t i = 0; i < n; ++i) {
      slides[i] = (*types)[i] == "sliding_attention";
      if (!slides[i] && (*types)[i] != "full_attention")
        throw Error(
            "{}: {} names \"{}\", which is not supported in this version; expected "
            "full_attention or sliding_attention",
            layer_.origin(), layer_.name("layer_types"), printable((*types)[i]));
    }
    return slides;
  }

  // What a few heads have beside the usual.
  void read_variants() {
    for (const char* key : kScales)
      if (const auto scale = place_of(key).number(key, -1e9, 1e9); scale && *scale != 1)
        throw Error("{}: {} is {}, which is not supported in this version; expected 1",
                    place_of(key).origin(), place_of(key).name(key), *scale);
    constexpr const char* kCap = "final_logit_softcapping";
    if (const auto cap = place_of(kCap).number(kCap, 0, 1e6); cap && *cap > 0)
      spec().logit_softcap = *cap;
    const auto beside = std::filesystem::path(origin()).parent_path() / "mask_embedding.pt";
    std::error_code ignored;
    if (std::filesystem::exists(beside, ignored))
      throw Error(
          "{}: a head with an embedding of its own for the mask is not supported in this "
          "version",
          beside.string());
  }

  void read_taps() {
    const int n_layers = target_.spec.n_layers();
    const TensorView* const fusion = find(Role::feature_fusion);
    if (!fusion)
      throw Error("{}: tensor {} is missing; the head is incomplete", origin(),
                  name(Role::feature_fusion));
    const std::int64_t columns = fusion->columns();
    const std::int64_t n = columns / block().tap_width;
    if (columns % block().tap_width != 0 || n < 1)
      throw Error(
          "{}: fc.weight reads {} numbers, no multiple of the width {} of {}; the head is for "
          "another model",
          origin(), columns, block().tap_width, target_name());
    constexpr const char *kInputs = "aux_hidden_state_layer_ids", *kOutputs = "target_layer_ids";
    constexpr int kMost = 1 << 20;
    const auto inputs = place_of(kInputs).integers(kInputs, 0, kMost);
    const auto outputs = place_of(kOutputs).integers(kOutputs, kEmbeddingTap, kMost);
    const bool is_listed = inputs || outputs;
    const char* const asked =
        inputs || (!outputs && (is_gguf_ || is_by("speculators"))) ? kInputs : kOutputs;
    const std::string key = place_of(asked).name(asked);
    const std::vector<int> ids = inputs    ? *inputs
                                 : outputs ? *outputs
                                           : usual_taps(spec().n_layers(), n_layers);
    const auto unknown = std::ranges::find_if(
        ids, [&](int id) { return id < kEmbeddingTap || id > (inputs ? n_layers : n_layers - 1); });
    if (!is_listed && (std::ssize(ids) != n || unknown != ids.end()))
      throw Error(
          "{}: {} is missing, so it is not known which {} layers of the target fc.weight reads",
          own_.origin(), key, n);
    if (std::ssize(ids) != n)
      throw Error(
          "{}: {} lists {} layers, but fc.weight reads {}; the head is for another model, or its "
          "config.json is another head's",
          own_.origin(), key, ids.size(), n);
    if (unknown != ids.end())
      throw Error("{}: {} lists {}, but {} has {} layers; the head is for another model",
                  own_.origin(), key, *unknown, target_name(), n_layers);
    // What enters a layer is what the one before puts out.
    for (const int id : ids) block().taps.push_back(tap_of(inputs ? id - 1 : id));
  }

  // What a file calls the output of the last layer is the state after the last norm, as
  // transformers has it, but before it in speculators' files.
  int tap_of(int layer) const {
    const int n_layers = target_.spec.n_layers();
    return layer == n_layers - 1 && !is_by("speculators") ? n_layers : layer;
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
    take(Role::feature_fusion, {std::ssize(block().taps) * std::int64_t{block().tap_width}, width});
    take(Role::feature_norm, {width});
    take(Role::output_norm, {width});
    take_successors();
    tensors_.take_or_share(Role::token_embedding, name(Role::token_embedding),
                           {width, spec().vocabulary});
    tensors_.take_or_share(Role::output, name(Role::output),
                           {width, count_outputs(tensors_, target_)});
    for (int layer = 0; layer < spec().n_layers(); ++layer)
      take_head_layer(tensors_, spec(), layer, names());
    for (const char* name : {"d2t", "t2d"}) tensors_.ignore(name);
    tensors_.ignore_frequencies();
    tensors_.check_nothing_else();
  }

  // DSpark's "Markov head", and its confidence.
  void take_successors() {
    const std::int64_t width = spec().embedding, rank = block().successor_rank;
    if (rank > 0) {
      take(Role::successor_table, {rank, spec().vocabulary});
      take(Role::successor_output, {rank, count_outputs(tensors_, target_)});
      if (block().successors_remember) {
        const std::string bias = name_in(file_, kMemoryBias);
        tensors_.take(Role::successor_gate, 0, name_in(file_, kMemoryTensor),
                      {2 * rank + width, 3 * rank});
        if (tensors_.find(bias)) tensors_.take(Role::successor_gate_bias, 0, bias, {3 * rank});
      } else if (find(Role::successor_gate)) {
        take(Role::successor_gate, {width + rank, rank});
        if (find(Role::successor_gate_bias)) take(Role::successor_gate_bias, {rank});
      }
    }
    if (!block().has_confidence) return;
    const bool reads_state_alone = find(Role::confidence)->columns() == width;
    take(Role::confidence, {reads_state_alone ? width : width + rank, 1});
    if (find(Role::confidence_bias)) take(Role::confidence_bias, {1});
  }

  void take(Role role, const std::vector<std::int64_t>& shape) {
    tensors_.take(role, 0, name(role), shape);
  }
  Head head_;
  const Checkpoint& file_;
  const Model& target_;
  const bool is_gguf_;
  const HeadConfig top_, layer_, own_;  // of the document, of its layers, of what DFlash adds
  HeadTensors tensors_;
};

}  // namespace

bool is_block_head(const Checkpoint& checkpoint) {
  if (is_gguf_head(checkpoint.metadata))
    return checkpoint.metadata.string("general.architecture") == kBlockArchitecture;
  return checkpoint.find("fc.weight") && checkpoint.find("hidden_norm.weight") &&
         checkpoint.find("layers.0.self_attn.q_proj.weight");
}

bool is_dspark(const Checkpoint& checkpoint) {
  const bool is_gguf = is_gguf_head(checkpoint.metadata);
  return is_block_head(checkpoint) &&
         checkpoint.find(name_in(checkpoint, tensor_name(Role::successor_table, 0, is_gguf)));
}

Head interpret_block_head(std::shared_ptr<const Checkpoint> checkpoint,
                          const nlohmann::json& config, const Model& target) {
  return BlockReader(std::move(checkpoint), config, target).read();
}

}  // namespace outrider

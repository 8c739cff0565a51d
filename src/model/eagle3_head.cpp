// EAGLE-3's heads in the layouts of SafeAILab, SpecForge, speculators and vLLM, DeepSpec, and as
// llama.cpp writes them in GGUF.

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "model/gguf_head.h"
#include "model/head_config.h"
#include "model/head_layer.h"
#include "model/head_readers.h"
#include "model/head_tensors.h"
#include "numerics/dequantize.h"

namespace outrider {
namespace {

// What producers call tensors of roles that only heads have, or that a head has once, and in GGUF
// of those that models have not.
struct HeadTensorName {
  Role role;
  std::string_view name;  // "{}" stands for the layer
};
constexpr HeadTensorName kNames[] = {
    {Role::token_embedding, "embed_tokens.weight"},
    {Role::output_norm, "norm.weight"},
    {Role::output, "lm_head.weight"},
    {Role::feature_fusion, "fc.weight"},
    {Role::feature_norm, "input_norm.weight"},
};
constexpr HeadTensorName kGgufNames[] = {
    {Role::feature_fusion, "fc.weight"},
    {Role::feature_norm, "enc.output_norm.weight"},
    {Role::token_norm, "blk.{}.attn_norm.weight"},
    {Role::attention_norm, "blk.{}.attn_norm_2.weight"},
};
// Tensors that say nothing that others do not.
constexpr std::string_view kIgnored[] = {"t2d", "d2t"};

constexpr GgufKey kGgufKeys[] = {
    {"target_hidden_size", "target_hidden_size"},
    {"norm_before_residual", "norm_before_residual"},
    {"norm_before_fc", "norm_before_fc"},
    {"extract_layers", "eagle_aux_hidden_state_layer_ids"},
    {"target_layers", "eagle_aux_hidden_state_layer_ids"},
};

class Eagle3Reader {
 public:
  Eagle3Reader(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
               const Model& target)
      : file_(*checkpoint),
        target_(target),
        is_gguf_(is_gguf_head(file_.metadata)),
        top_(is_gguf_ ? config_of_gguf(file_.metadata, kEagle3Architecture, kGgufKeys)
                      : config_beside(origin(), config)),
        config_(top_.object("transformer_layer_config").value_or(top_)),
        tensors_(head_, file_, target_, "an EAGLE-3 head") {
    head_.kind = "EAGLE-3";
    head_.model.checkpoint = std::move(checkpoint);
    if (!is_gguf_) head_.made_for = read_made_for(config, origin());
  }

  Head read() {
    find_layout();
    if (head_.made_for) check_shape(*head_.made_for, origin(), target_);
    read_spec();
    read_taps();
    note_other_state();
    if (head_.made_for) head_.other_readings.clear();
    head_.output_tokens =
        read_draft_tokens(tensors_, top_, target_, tensor_name(Role::output, 0), is_gguf_);
    read_tensors();
    check_nothing_else();
    return std::move(head_);
  }

 private:
  const std::string& origin() const { return file_.metadata.origin(); }
  ModelSpec& spec() { return head_.model.spec; }
  EagleInput& eagle() { return *spec().eagle; }

  // --- the layout: what tensors are called

  void find_layout() {
    refuse_other_kinds();
    if (is_gguf_) {
      head_.producer = "llama.cpp";
      layer_pattern_ = "{}";
    } else if (file_.find("midlayer.self_attn.q_proj.weight")) {
      head_.producer = top_.has("eagle_config") ? "SpecForge" : "SafeAILab";
      layer_pattern_ = "midlayer";
    } else if (file_.find("layers.0.self_attn.q_proj.weight")) {
      const bool is_speculators = top_.has("speculators_model_type") ||
                                  top_.has("speculators_config") ||
                                  top_.has("transformer_layer_config");
      head_.producer = is_speculators                 ? "speculators"
                       : top_.has("target_layer_ids") ? "DeepSpec"
                                                      : "vLLM";
      layer_pattern_ = "layers.{}";
    } else {
      throw Error(
          "{}: is no EAGLE-3 head: it has neither midlayer.self_attn.q_proj.weight nor "
          "layers.0.self_attn.q_proj.weight; expected the files that its publisher made for "
          "SafeAILab's EAGLE, SpecForge, vLLM or llama.cpp",
          origin());
    }
    if (!file_.find("fc.weight"))
      throw Error(
          "{}: tensor fc.weight is missing; a head that reads no layers of its target is "
          "not supported in this version",
          origin());
  }

  // What else is published as a head, or given for one.
  void refuse_other_kinds() const {
    const auto has = [&](std::string_view prefix) {
      return std::ranges::any_of(
          file_.tensors, [&](const TensorView& tensor) { return tensor.name.starts_with(prefix); });
    };
    if (is_gguf_) return;
    if (has("model.layers.") && !file_.find("fc.weight"))
      throw Error(
          "{}: is a whole model, no head; as a draft model it is read in GGUF: convert its folder "
          "with llama.cpp's convert_hf_to_gguf.py and give that file",
          origin());
  }

  std::string tensor_name(Role role, int layer) const {
    if (is_gguf_) {
      for (const auto& [known, name] : kGgufNames)
        if (known == role) return fmt::format(fmt::runtime(name), layer);
      return gguf_tensor_name(role, layer);
    }
    for (const auto& [known, name] : kNames)
      if (known == role) return std::string(name);
    // The first layer has a norm for the token beside that for the stream; further ones read the
    // stream alone, as decoders' do.
    std::string_view name = layer_tensor_name(role);
    if (layer == 0 && role == Role::attention_norm) name = "hidden_norm.weight";
    if (layer == 0 && role == Role::token_norm) name = layer_tensor_name(Role::attention_norm);
    if (name.empty()) return {};
    return fmt::format("{}.{}", fmt::format(fmt::runtime(layer_pattern_), layer), name);
  }

  // Null also for a role of which this layout has none.
  const TensorView* find(Role role, int layer = 0) const {
    const std::string name = tensor_name(role, layer);
    return name.empty() ? nullptr : file_.find(name);
  }

  // --- numbers

  void read_spec() {
    const int n_layers = read_head_layers(config_, target_);
    if (n_layers > 1 && layer_pattern_ == "midlayer")
      throw Error("{}: {} is {}, but midlayer is a single one; expected 1", config_.origin(),
                  config_.name("num_hidden_layers"), n_layers);
    spec().family = std::string(kEagle3Architecture);
    spec().vocabulary = target_.spec.vocabulary;
    spec().embedding = config_.required_integer("hidden_size", 1, 1 << 20);
    spec().context_trained = target_.spec.context_trained;
    spec().norm_eps = read_head_epsilon(config_);
    if (!find(Role::token_embedding) && spec().embedding != target_.spec.embedding)
      throw Error(
          "{}: has no embedding of its own, and its width is {}, but that of {} is {}; the head is "
          "for another model",
          origin(), spec().embedding, target_name(), target_.spec.embedding);
    spec().eagle.emplace();
    eagle().tap_width = target_.spec.embedding;
    if (const auto width = top_.integer("target_hidden_size", 1, 1 << 20);
        width && *width != eagle().tap_width)
      throw Error("{}: {} is {}, but the width of {} is {}; the head is for another model",
                  top_.origin(), top_.name("target_hidden_size"), *width, target_name(),
                  eagle().tap_width);
    eagle().taps.resize(count_taps());
    eagle().residual_is_normed = top_.boolean("norm_before_residual").value_or(false);
    if (file_.find("fc_norm.0.weight")) eagle().feature_norm = EagleInput::Norm::each;
    if (find(Role::feature_norm)) eagle().feature_norm = EagleInput::Norm::whole;
    read_norm_output();
    // DeepSpec's heads for Gemma scale their own embedding.
    if (head_.producer == "DeepSpec") spec().embedding_scale = own_embedding_scale();

    const Attention attention = read_attention();
    const Mlp mlp = read_head_mlp(config_);
    for (int layer = 0; layer < n_layers; ++layer)
      spec().layers.push_back({{{.pre_norm = Role::attention_norm,
                                 .body = attention,
                                 .post_norm = {},
                                 .reads_token = layer == 0},
                                {.pre_norm = Role::mlp_norm, .body = mlp, .post_norm = {}}}});
  }

  // The key says whether the state that goes on is normed, but SpecForge's says whether logits come
  // from a normed one, and its heads go on with the state as it is.
  void read_norm_output() {
    const std::optional<bool> norm_output = top_.boolean("norm_output");
    if (layer_pattern_ != "midlayer") {
      eagle().state_is_normed = norm_output.value_or(false);
    } else if (norm_output == false) {
      throw Error("{}: {} is false, logits without a norm, which is not supported in this version",
                  origin(), top_.name("norm_output"));
    }
  }

  const std::string& target_name() const { return target_.checkpoint->metadata.origin(); }

  // A tensor without elements may have any number of columns.
  std::size_t count_taps() const {
    const std::int64_t columns = file_.find("fc.weight")->columns();
    const std::int64_t n = columns / target_width();
    const std::int64_t most = target_.spec.n_layers() + 2;  // with the embedding and the last norm
    if (columns % target_width() != 0 || n < 1)
      throw Error(
          "{}: fc.weight reads {} numbers, no multiple of the width {} of {}; the head is for "
          "another model",
          origin(), columns, target_width(), target_name());
    if (n > most)
      throw Error(
          "{}: fc.weight reads {} layers of the target, but {} has {}; the head is for another "
          "model",
          origin(), n, target_name(), target_.spec.n_layers());
    return static_cast<std::size_t>(n);
  }
  std::int64_t target_width() const { return target_.spec.embedding; }

  float own_embedding_scale() const {
    const bool has_own = file_.find("embed_tokens.weight") != nullptr;
    return has_own ? target_.spec.embedding_scale : 1.0f;
  }

  Attention read_attention() const {
    Attention attention = read_head_attention(
        config_, is_gguf_ ? RopePairing::adjacent : RopePairing::halves, tensors_, names());
    if (head_.made_for) attention.first_key = head_.made_for->first_row;
    if (is_gguf_) divide_by_factors(*attention.rope);
    return attention;
  }
  HeadTensorNames names() const {
    return [this](Role role, int layer) { return tensor_name(role, layer); };
  }

  void divide_by_factors(Rope& rope) const {
    const TensorView* factors = file_.find("rope_freqs.weight");
    if (!factors) return;
    if (factors->type != TensorType::f32 || factors->elements() != std::ssize(rope.frequencies))
      throw Error("{}: tensor rope_freqs.weight is {} [{}], expected F32 [{}]", origin(),
                  traits(factors->type).name, fmt::join(factors->shape, ", "),
                  rope.frequencies.size());
    for (std::size_t i = 0; i < rope.frequencies.size(); ++i) {
      float factor;
      std::memcpy(&factor, &factors->bytes[i * sizeof(factor)], sizeof(factor));
      if (!(factor >= 0.7f && factor <= 1e6f))
        throw Error("{}: tensor rope_freqs.weight holds {}, expected numbers from 0.7 to 1e6",
                    origin(), factor);
      rope.frequencies[i] /= factor;
    }
  }

  // --- tensors

  void read_tensors() {
    tensors_.begin();
    const std::int64_t width = spec().embedding;
    const std::int64_t features = std::ssize(eagle().taps) * std::int64_t{eagle().tap_width};
    take(Role::feature_fusion, 0, {features, width});
    take(Role::output_norm, 0, {width});
    take_feature_norm(features);
    tensors_.take_or_share(Role::token_embedding, tensor_name(Role::token_embedding, 0),
                           {width, spec().vocabulary});
    take_output();
    take(Role::token_norm, 0, {width});
    for (int layer = 0; layer < spec().n_layers(); ++layer)
      take_head_layer(tensors_, spec(), layer, names());
  }

  void take(Role role, int layer, const std::vector<std::int64_t>& shape) {
    tensors_.take(role, layer, tensor_name(role, layer), shape);
  }

  void take_feature_norm(std::int64_t features) {
    if (eagle().feature_norm == EagleInput::Norm::whole) {
      take(Role::feature_norm, 0, {features});
    } else if (eagle().feature_norm == EagleInput::Norm::each) {
      std::vector<float> joined;
      for (std::size_t tap = 0; tap < eagle().taps.size(); ++tap) {
        const TensorView* norm =
            tensors_.checked(fmt::format("fc_norm.{}.weight", tap), {eagle().tap_width});
        joined.resize(joined.size() + static_cast<std::size_t>(eagle().tap_width));
        dequantize(norm->type, norm->bytes,
                   std::span(joined).last(static_cast<std::size_t>(eagle().tap_width)));
      }
      const auto bytes = std::as_bytes(std::span(joined));
      tensors_.set(
          Role::feature_norm, 0,
          tensors_.keep(
              {.name = "fc_norm", .type = TensorType::f32, .shape = {features}, .bytes = {}},
              {bytes.begin(), bytes.end()}));
    }
    if (top_.boolean("norm_before_fc").value_or(false) &&
        eagle().feature_norm == EagleInput::Norm::none)
      throw Error("{}: {} is true, but tensor {} is missing", top_.origin(),
                  top_.name("norm_before_fc"), tensor_name(Role::feature_norm, 0));
  }

  // A head of another width than its target's cannot share its output.
  void take_output() {
    const std::string name = tensor_name(Role::output, 0);
    const std::vector<std::int64_t> shape{spec().embedding, count_outputs(tensors_, target_)};
    if (spec().embedding != target_.spec.embedding)
      tensors_.take(Role::output, 0, name, shape);
    else
      tensors_.take_or_share(Role::output, name, shape);
  }

  // --- taps, as outputs of layers

  void read_taps() {
    const int n_layers = target_.spec.n_layers();
    const std::ptrdiff_t n = std::ssize(eagle().taps);
    const auto nested = top_.object("eagle_config");
    // The layers that a key lists; an empty list says nothing.
    std::string key;
    std::vector<int> listed;
    const auto read = [&](const HeadConfig& from, std::string_view name) {
      key = from.name(name);
      listed = from.integers(name, kEmbeddingTap, 1 << 20).value_or(std::vector<int>());
      return !listed.empty();
    };
    constexpr std::string_view kIds = "eagle_aux_hidden_state_layer_ids";
    int least = kEmbeddingTap;  // of what is listed
    if ((nested && read(*nested, kIds)) || read(top_, "target_layer_ids")) {
      eagle().taps = listed;
    } else if (read(top_, kIds)) {
      // Layers whose input is read, which is the output of those before; n_layers stands for the
      // output of the last norm.
      least = 0;
      eagle().taps.clear();
      for (const int id : listed) eagle().taps.push_back(id == n_layers ? id : id - 1);
    } else if (n == 1 && nested && nested->boolean("use_aux_hidden_state") == false) {
      eagle().taps = {n_layers};
    } else if (n == 3 && n_layers >= 5) {
      eagle().taps = {1, n_layers / 2 - 1, n_layers - 4};
    } else {
      throw Error(
          "{}: {} is missing, so it is not known which {} layers of the target fc.weight reads",
          top_.origin(), key, n);
    }
    if (std::ssize(eagle().taps) != n)
      throw Error(
          "{}: {} lists {} layers, but fc.weight reads {}; the head is for another model, or "
          "its config.json is another head's",
          top_.origin(), key, listed.size(), n);
    note_other_taps(key, listed.empty(), least);
    for (const int layer : listed) {
      if (layer >= least && layer <= n_layers) continue;
      throw Error("{}: {} lists {}, but {} has {} layers; the head is for another model",
                  top_.origin(), key, layer, target_name(), n_layers);
    }
  }

  // --- what else the file may mean

  // Keys of one name count layers by what they put out or by what enters them; speculators' and
  // DeepSpec's files say which.
  void note_other_taps(const std::string& key, bool is_guessed, int least) {
    if (is_gguf_ || head_.producer == "speculators" || head_.producer == "DeepSpec") return;
    const bool are_inputs = least == 0 && !is_guessed;
    EagleInput other = eagle();
    for (int& tap : other.taps) tap += are_inputs || is_guessed ? 1 : -1;
    const bool exist = std::ranges::all_of(
        other.taps, [&](int tap) { return tap >= kEmbeddingTap && tap < target_.spec.n_layers(); });
    if (!exist || is_of_last_norm(eagle().taps)) return;
    head_.other_readings.push_back({is_guessed   ? "layers one later"
                                    : are_inputs ? key + " as layers' outputs"
                                                 : key + " as layers' inputs",
                                    other});
  }
  bool is_of_last_norm(const std::vector<int>& taps) const {
    return std::ranges::find(taps, target_.spec.n_layers()) != taps.end();
  }

  // EAGLE-3.1's key in a layout in which it usually means something else.
  void note_other_state() {
    if (layer_pattern_ != "midlayer" || eagle().feature_norm != EagleInput::Norm::each ||
        top_.boolean("norm_output") != true)
      return;
    EagleInput other = eagle();
    other.state_is_normed = true;
    head_.other_readings.push_back({"the normed state goes on", other});
  }

  void check_nothing_else() {
    for (const std::string_view name : kIgnored) tensors_.ignore(name);
    if (is_gguf_) tensors_.ignore("rope_freqs.weight");
    tensors_.ignore_frequencies();
    tensors_.check_nothing_else();
  }

  Head head_;
  const Checkpoint& file_;
  const Model& target_;
  const bool is_gguf_;
  const HeadConfig top_, config_;  // of the document, and of the layer
  std::string layer_pattern_;
  HeadTensors tensors_;
};

}  // namespace

Head interpret_eagle3(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
                      const Model& target) {
  return Eagle3Reader(std::move(checkpoint), config, target).read();
}

}  // namespace outrider

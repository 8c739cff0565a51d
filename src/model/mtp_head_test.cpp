// Layers for multi-token prediction are read as their producers mean them, or refused in one line.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>

#include "base/error.h"
#include "model/head.h"
#include "model/small_head_test.h"

namespace outrider {
namespace {

const Model& target() {
  static const Model model = small_target();
  return model;
}

Head read(const SmallHead& head) {
  return head.read(target());
}

// What a layout calls the parts of a small layer.
struct Names {
  std::string producer, layer, fusion, token_norm, state_norm, output_norm;
};
const Names kMiMo = {"MiMo",
                     "model.mtp_layers.0.",
                     "model.mtp_layers.0.input_proj",
                     "model.mtp_layers.0.token_layernorm",
                     "model.mtp_layers.0.hidden_layernorm",
                     "model.mtp_layers.0.final_layernorm"};
const Names kSpeculators = {"speculators",
                            "mtp_layers.0.",
                            "mtp_layers.0.input_proj",
                            "mtp_layers.0.token_layernorm",
                            "mtp_layers.0.hidden_layernorm",
                            "mtp_layers.0.final_layernorm"};
const Names kQwen = {
    "Qwen",    "mtp.layers.0.", "mtp.fc", "mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden",
    "mtp.norm"};
const Names kDeepSeek = {"DeepSeek",
                         "model.layers.6.",
                         "model.layers.6.eh_proj",
                         "model.layers.6.enorm",
                         "model.layers.6.hnorm",
                         "model.layers.6.shared_head.norm"};

SmallHead small_layer(const Names& names) {
  SmallHead head;
  add_decoder_layer(head, names.layer);
  head.add(names.fusion + ".weight", {2 * kSmallWidth, kSmallWidth});
  for (const std::string& norm : {names.token_norm, names.state_norm, names.output_norm})
    head.add(norm + ".weight", {kSmallWidth});
  head.config.update({{"num_hidden_layers", 6}, {"rope_theta", 1e6}});
  return head;
}

// As llama.cpp writes it: behind the layers of the model, and shaped like these.
SmallHead small_gguf_layer() {
  SmallHead head;
  head.origin = "dir/mtp.gguf";
  head.config = nullptr;
  head.metadata = {{"general.architecture", "llama"},
                   {"llama.block_count", std::int64_t{7}},
                   {"llama.nextn_predict_layers", std::int64_t{1}}};
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    head.add("blk.6." + name + ".weight", std::move(shape));
  };
  for (const char* norm : {"attn_norm", "ffn_norm", "nextn.enorm", "nextn.hnorm"})
    add(norm, {kSmallWidth});
  for (const char* matrix : {"attn_q", "attn_k", "attn_v", "attn_output"})
    add(matrix, {kSmallWidth, kSmallWidth});
  for (const char* matrix : {"ffn_gate", "ffn_up"}) add(matrix, {kSmallWidth, kSmallFfn});
  add("ffn_down", {kSmallFfn, kSmallWidth});
  add("nextn.eh_proj", {2 * kSmallWidth, kSmallWidth});
  return head;
}

TEST(MtpHead, Layouts) {
  for (const Names& names : {kMiMo, kSpeculators, kQwen, kDeepSeek}) {
    SCOPED_TRACE(names.producer);
    SmallHead file = small_layer(names);
    const bool is_speculators = names.producer == "speculators";
    // The model itself may be there, and a further layer for prediction.
    if (!is_speculators) file.add("model.layers.0.self_attn.q_proj.weight", {8, 8});
    if (names.layer.ends_with("layers.0."))
      file.add(names.layer.substr(0, names.layer.size() - 2) + "1.mlp.up_proj.weight", {8, 8});
    EXPECT_EQ(drafter_of_head(*file.checkpoint()), "mtp");
    const Head head = read(file);
    EXPECT_EQ(head.kind, "MTP");
    EXPECT_EQ(head.producer, names.producer);
    const ModelSpec& spec = head.model.spec;
    EXPECT_TRUE(spec.has_output_norm);
    ASSERT_EQ(spec.n_layers(), 1);
    const EagleInput expected{.taps = {is_speculators || names.producer == "MiMo" ? 5 : 6},
                              .tap_width = kSmallWidth,
                              .fused = names.producer == "MiMo"
                                           ? EagleInput::Fused::state_and_token
                                           : EagleInput::Fused::token_and_state,
                              .feature_norm = EagleInput::Norm::whole,
                              .state_is_normed = true};
    EXPECT_EQ(*spec.eagle, expected);
    const std::vector<Operation>& operations = spec.layers[0].operations;
    EXPECT_EQ(operations[0].pre_norm, Role::attention_norm);
    EXPECT_FALSE(operations[0].reads_token);
    EXPECT_EQ(std::get<Attention>(operations[0].body).first_key, 1);
    for (const auto& [role, name] : {std::pair(Role::feature_fusion, names.fusion),
                                     std::pair(Role::token_norm, names.token_norm),
                                     std::pair(Role::feature_norm, names.state_norm),
                                     std::pair(Role::output_norm, names.output_norm)})
      EXPECT_EQ(head.model.weight(role)->name, name + ".weight");
    EXPECT_EQ(head.model.weight(Role::output)->name, "output.weight");
    EXPECT_EQ(head.model.weight(Role::token_embedding)->name, "token_embd.weight");

    // Qwen's files have w - 1.
    for (const Role role : {Role::token_norm, Role::feature_norm, Role::output_norm,
                            Role::attention_norm, Role::mlp_norm}) {
      float first;
      std::memcpy(&first, head.model.weight(role)->bytes.data(), sizeof(first));
      EXPECT_EQ(first, names.producer == "Qwen" ? 1.5f : 0.5f);
    }
  }
}

// The model's layer whose output is read, 6 for the normed state, and whether the head's own state
// is normed: of the head and of its other readings.
using States = std::vector<std::pair<int, bool>>;

States states_of(const Head& head) {
  States states{{head.model.spec.eagle->taps.at(0), head.model.spec.eagle->state_is_normed}};
  for (const Head::Reading& reading : head.other_readings) {
    states.emplace_back(reading.input.taps.at(0), reading.input.state_is_normed);
    EXPECT_EQ(reading.input.fused, head.model.spec.eagle->fused);
  }
  return states;
}

// Which states are meant is not in most files.
TEST(MtpHead, OtherReadings) {
  for (const Names& names : {kQwen, kDeepSeek})
    EXPECT_EQ(states_of(read(small_layer(names))),
              (States{{6, true}, {6, false}, {5, true}, {5, false}}));
  for (const Names& names : {kMiMo, kSpeculators})
    EXPECT_EQ(states_of(read(small_layer(names))),
              (States{{5, true}, {6, true}, {6, false}, {5, false}}));
}

// What the file says is not measured.
TEST(MtpHead, NamedReadings) {
  struct Case {
    std::optional<bool> reads_normed, feeds_back_normed;
    States states;
  };
  for (const Case& c :
       {Case{false, {}, {{5, true}, {5, false}}}, Case{true, {}, {{6, true}, {6, false}}},
        Case{{}, false, {{6, false}, {5, false}}}, Case{{}, true, {{6, true}, {5, true}}},
        Case{false, false, {{5, false}}}, Case{true, false, {{6, false}}},
        Case{false, true, {{5, true}}}, Case{true, true, {{6, true}}}}) {
    SmallHead file = small_layer(kQwen), gguf = small_gguf_layer();
    file.config = {{"text_config", file.config}};
    const auto say = [&](const std::string& key, std::optional<bool> value) {
      if (!value) return;
      file.config["mtp_" + key] = *value;
      gguf.metadata["llama.nextn." + key] = *value;
    };
    say("reads_normed_state", c.reads_normed);
    say("feeds_back_normed_state", c.feeds_back_normed);
    EXPECT_EQ(states_of(read(file)), c.states);
    EXPECT_EQ(states_of(read(gguf)), c.states);
  }
}

// Files of speculators have norms as the model's own classes have them.
TEST(MtpHead, NormsLessOneByFamily) {
  for (const auto& [type, first] :
       {std::pair("qwen3", 0.5f), std::pair("qwen3_next", 1.5f), std::pair("qwen3_5_text", 1.5f)}) {
    SCOPED_TRACE(type);
    SmallHead file = small_layer(kSpeculators);
    file.config["model_type"] = type;
    file.config = {{"speculators_model_type", "mtp"}, {"transformer_layer_config", file.config}};
    const Head head = read(file);
    float found;
    std::memcpy(&found, head.model.weight(Role::token_norm)->bytes.data(), sizeof(found));
    EXPECT_EQ(found, first);
  }
}

TEST(MtpHead, Variants) {
  SmallHead file = small_layer(kDeepSeek);
  file.add("model.layers.6.embed_tokens.weight", {kSmallWidth, kSmallVocabulary});
  file.add("model.layers.6.shared_head.head.weight", {kSmallWidth, kSmallVocabulary});
  Head head = read(file);
  EXPECT_EQ(head.model.weight(Role::output)->name, "model.layers.6.shared_head.head.weight");
  EXPECT_EQ(head.model.weight(Role::token_embedding)->name, "model.layers.6.embed_tokens.weight");

  file = small_layer(kQwen);
  for (const char* norm : {"q_norm", "k_norm"})
    file.add(fmt::format("mtp.layers.0.self_attn.{}.weight", norm), {kSmallHeadDim});
  file.config = {{"text_config", file.config}};
  head = read(file);
  EXPECT_EQ(attention_of(head.model.spec.layers[0])->qk_norm, HeadNorm::shared);
  float first;
  std::memcpy(&first, head.model.weight(Role::attention_q_norm)->bytes.data(), sizeof(first));
  EXPECT_EQ(first, 1.5f);
}

// For each head queries come first, then gates. Half of the channels turn.
TEST(MtpHead, GatedAttention) {
  SmallHead file = small_layer(kQwen);
  std::vector<float> rows;  // each number is that of its row
  for (int row = 0; row < 2 * kSmallHeads * kSmallHeadDim; ++row)
    rows.insert(rows.end(), kSmallWidth, static_cast<float>(row));
  file.set("mtp.layers.0.self_attn.q_proj.weight", TensorType::f32,
           {kSmallWidth, 2 * kSmallHeads * kSmallHeadDim}, rows);
  file.config["rope_parameters"] = {{"partial_rotary_factor", 0.5}, {"rope_theta", 5000}};
  const Head head = read(file);
  const Attention& attention = *attention_of(head.model.spec.layers[0]);
  EXPECT_TRUE(attention.has_gate);
  EXPECT_EQ(attention.rope->dims(), kSmallHeadDim / 2);
  for (const auto& [role, first_rows] :
       {std::pair(Role::attention_q, std::vector<float>{0, 1, 2, 3, 8, 9, 10, 11}),
        std::pair(Role::attention_gate, std::vector<float>{4, 5, 6, 7, 12, 13, 14, 15})}) {
    const TensorView& tensor = *head.model.weight(role);
    EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{kSmallWidth, kSmallHeads * kSmallHeadDim}));
    for (std::size_t row = 0; row < first_rows.size(); ++row) {
      float first;
      std::memcpy(&first, &tensor.bytes[row * kSmallWidth * sizeof(float)], sizeof(first));
      EXPECT_EQ(first, first_rows[row]);
    }
  }
}

TEST(MtpHead, Gguf) {
  SmallHead file = small_gguf_layer();
  EXPECT_EQ(drafter_of_head(*file.checkpoint()), "mtp");
  EXPECT_TRUE(is_head(*file.checkpoint()));
  Head head = read(file);
  EXPECT_EQ(head.producer, "llama.cpp");
  const ModelSpec& spec = head.model.spec;
  LayerSpec layer = target().spec.layers.back();
  std::get<Attention>(layer.operations[0].body).first_key = 1;
  EXPECT_EQ(spec.layers, std::vector{layer});
  EXPECT_EQ(spec.norm_eps, target().spec.norm_eps);
  EXPECT_EQ(spec.eagle->taps, std::vector{6});
  EXPECT_TRUE(spec.eagle->state_is_normed);
  EXPECT_EQ(spec.eagle->fused, EagleInput::Fused::token_and_state);
  EXPECT_EQ(head.other_readings.size(), 3u);
  EXPECT_EQ(head.model.weight(Role::token_norm)->name, "blk.6.nextn.enorm.weight");
  EXPECT_EQ(head.model.weight(Role::feature_norm)->name, "blk.6.nextn.hnorm.weight");
  EXPECT_EQ(head.model.weight(Role::attention_q)->name, "blk.6.attn_q.weight");
  EXPECT_EQ(head.model.weight(Role::mlp_norm)->name, "blk.6.ffn_norm.weight");
  // What it lacks is the target's.
  EXPECT_EQ(head.model.weight(Role::output_norm), target().weight(Role::output_norm));
  EXPECT_EQ(head.model.weight(Role::output), target().weight(Role::output));
  EXPECT_EQ(head.model.weight(Role::token_embedding), target().weight(Role::token_embedding));

  // Its own outputs; the model's layers, a further layer, and queries, keys and values in one.
  file.add("blk.6.nextn.shared_head_norm.weight", {kSmallWidth});
  file.add("blk.6.nextn.shared_head_head.weight", {kSmallWidth, kSmallVocabulary});
  file.add("blk.6.nextn.embed_tokens.weight", {kSmallWidth, kSmallVocabulary});
  file.add("blk.0.attn_norm.weight", {kSmallWidth});
  file.add("blk.7.attn_norm.weight", {kSmallWidth});
  for (const char* matrix : {"attn_q", "attn_k", "attn_v"})
    file.tensors.erase(fmt::format("blk.6.{}.weight", matrix));
  file.add("blk.6.attn_qkv.weight", {kSmallWidth, 3 * kSmallWidth});
  EXPECT_FALSE(is_head(*file.checkpoint()));
  EXPECT_TRUE(has_prediction_layer(*file.checkpoint()));
  head = read(file);
  EXPECT_EQ(head.model.weight(Role::output_norm)->name, "blk.6.nextn.shared_head_norm.weight");
  EXPECT_EQ(head.model.weight(Role::output)->name, "blk.6.nextn.shared_head_head.weight");
  EXPECT_EQ(head.model.weight(Role::token_embedding)->name, "blk.6.nextn.embed_tokens.weight");
  const TensorView& query = *head.model.weight(Role::attention_q);
  const TensorView& key = *head.model.weight(Role::attention_k);
  EXPECT_EQ(key.shape, (std::vector<std::int64_t>{kSmallWidth, kSmallWidth}));
  EXPECT_EQ(key.bytes.data(), query.bytes.data() + query.bytes.size());
}

// Scaling is that of the channels that turn.
TEST(MtpHead, ScaledRopeOverAPart) {
  SmallHead file = small_layer(kQwen);
  file.config["rope_parameters"] = {{"rope_type", "yarn"},
                                    {"rope_theta", 5000},
                                    {"factor", 4},
                                    {"original_max_position_embeddings", 64},
                                    {"partial_rotary_factor", 0.5}};
  const Attention attention = *attention_of(read(file).model.spec.layers[0]);
  EXPECT_EQ(attention.rope->frequencies, std::vector<double>{1});
  EXPECT_GT(attention.rope->magnitude, 1);
}

TEST(MtpHead, Refused) {
  struct Case {
    SmallHead file;
    std::function<void(SmallHead&)> change;
    std::string error;
  };
  const Case cases[] = {
      {small_layer(kMiMo), [](SmallHead& head) { head.config["hidden_size"] = 16; },
       "dir/config.json: hidden_size is 16, but the width of target.gguf is 8; the head is for "
       "another model"},
      {small_layer(kQwen), [](SmallHead& head) { head.config["partial_rotary_factor"] = 0.25; },
       "dir/config.json: partial_rotary_factor is 0.25: of 4 channels 1 would turn, expected an "
       "even number from 2 on"},
      {small_layer(kQwen),
       [](SmallHead& head) {
         head.add("mtp.layers.0.mlp.gate.weight", {8, 4});
       },
       "dir/head.safetensors: tensor mtp.layers.0.mlp.gate.weight: the layer has a mixture of "
       "experts, which is not supported in this version"},
      {small_layer(kDeepSeek),
       [](SmallHead& head) {
         head.add("model.layers.6.self_attn.kv_a_proj_with_mqa.weight", {8, 4});
       },
       "dir/head.safetensors: tensor model.layers.6.self_attn.kv_a_proj_with_mqa.weight: the layer "
       "has multi-head latent attention, which is not supported in this version"},
      {small_layer(kMiMo),
       [](SmallHead& head) { head.tensors.erase("model.mtp_layers.0.mlp.up_proj.weight"); },
       "dir/head.safetensors: tensor model.mtp_layers.0.mlp.up_proj.weight is missing; the head is "
       "incomplete, or of a kind that this version does not support"},
      {small_layer(kMiMo), [](SmallHead& head) { head.add("model.mtp_layers.0.gate.weight", {8}); },
       "dir/head.safetensors: tensor model.mtp_layers.0.gate.weight has no place in a layer for "
       "multi-token prediction; this variant is not supported in this version"},
      {small_layer(kMiMo), [](SmallHead& head) { head.config = nullptr; },
       "dir/head.safetensors: there is no config.json beside the head, which says how it is built"},
      {small_gguf_layer(), [](SmallHead& head) { head.metadata["general.architecture"] = "qwen2"; },
       "dir/mtp.gguf: architecture \"qwen2\", but that of target.gguf is \"llama\"; the head is "
       "for "
       "another model"},
      {small_gguf_layer(), [](SmallHead& head) { head.tensors.erase("blk.6.ffn_up.weight"); },
       "dir/mtp.gguf: tensor blk.6.ffn_up.weight is missing; the file is incomplete, convert the "
       "model again (as its layer for prediction is like those of target.gguf)"},
      {small_gguf_layer(), [](SmallHead& head) { head.tensors.erase("blk.6.nextn.enorm.weight"); },
       "dir/mtp.gguf: tensor blk.6.nextn.enorm.weight is missing; the head is incomplete, or of a "
       "kind that this version does not support"},
      {small_gguf_layer(),
       [](SmallHead& head) {
         head.add("blk.6.attn_q.weight", {kSmallWidth, 16});
       },
       "dir/mtp.gguf: tensor blk.6.attn_q.weight is [8, 16], but the metadata asks for [8, 8]; "
       "convert the model again (as its layer for prediction is like those of target.gguf)"},
      {small_gguf_layer(),
       [](SmallHead& head) {
         head.add("blk.6.ffn_gate_inp.weight", {8, 4});
         head.tensors.erase("blk.6.ffn_gate.weight");
       },
       "dir/mtp.gguf: tensor blk.6.ffn_gate_inp.weight: the layer has a mixture of experts, which "
       "is not supported in this version"},
      {small_gguf_layer(),
       [](SmallHead& head) {
         head.add("blk.6.attn_gate.weight", {8, 8});
       },
       "dir/mtp.gguf: tensor blk.6.attn_gate.weight has no place in a layer for multi-token "
       "prediction; this variant is not supported in this version"},
      {small_gguf_layer(),
       [](SmallHead& head) {
         head.metadata["llama.nextn.reads_normed_state"] = std::string("yes");
       },
       "dir/mtp.gguf: llama.nextn.reads_normed_state is \"yes\", expected true or false"},
      {small_layer(kQwen), [](SmallHead& head) { head.config["mtp_reads_normed_state"] = 1; },
       "dir/config.json: mtp_reads_normed_state is 1, expected true or false"},
      {small_layer(kQwen),
       [](SmallHead& head) {
         head.add("mtp.embed_tokens.weight", {8, 16});
       },
       "dir/head.safetensors: tensor mtp.embed_tokens.weight has no place in a layer for "
       "multi-token prediction; this variant is not supported in this version"},
      {small_layer(kDeepSeek),
       [](SmallHead& head) {
         head.set_d2t({0, 1});
       },
       "dir/head.safetensors: tensor d2t has no place in a layer for multi-token prediction; this "
       "variant is not supported in this version"},
      {small_layer(kSpeculators), [](SmallHead& head) { head.add("norm.weight", {8}); },
       "dir/head.safetensors: tensor norm.weight has no place in a layer for multi-token "
       "prediction; this variant is not supported in this version"},
  };
  for (const auto& [head, change, error] : cases) {
    SmallHead file = head;
    change(file);
    try {
      read(file);
      ADD_FAILURE() << "expected: " << error;
    } catch (const Error& found) {
      EXPECT_EQ(std::string(found.what()), error);
    }
  }
  // DeepSeek's names say how many layers the model has.
  SmallHead other = small_layer(kDeepSeek);
  const Model longer = small_target(8);
  try {
    other.read(longer);
    ADD_FAILURE();
  } catch (const Error& found) {
    EXPECT_EQ(std::string(found.what()),
              "dir/head.safetensors: its layer for prediction follows another number of layers "
              "than the 8 of target.gguf (there is no tensor model.layers.8.eh_proj.weight); the "
              "head is for another model");
  }
}

}  // namespace
}  // namespace outrider

// A head is read as its producer means it, or refused with a line that says what is wrong.

#include "model/head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "model/small_head_test.h"
#include "numerics/rope.h"

namespace outrider {
namespace {

using nlohmann::json;

const Model& target() {
  static const Model model = small_target();
  return model;
}

Head read(const SmallHead& head) {
  return head.read(target());
}
const ModelSpec& spec_of(const Head& head) {
  return head.model.spec;
}
Attention attention_of(const SmallHead& head) {
  return *attention_of(read(head).model.spec.layers[0]);
}
std::vector<float> values_of(const TensorView& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

const std::vector<Token> kTokens = {0, 2, 4, 7, 15};

// What all layouts have in common, read from each.
TEST(Head, Layouts) {
  struct Case {
    const char *producer, *layer;
    json more;
  };
  const json speculators = {{"speculators_model_type", "eagle3"},
                            {"draft_vocab_size", kSmallRows},
                            {"transformer_layer_config", small_head().config}};
  const Case cases[] = {
      {"SafeAILab", "midlayer", {}},
      {"SpecForge", "midlayer", {{"eagle_config", {{"use_aux_hidden_state", true}}}}},
      {"vLLM", "layers.0", {}},
      {"speculators", "layers.0", {{"speculators_config", {{"algorithm", "eagle3"}}}}},
      {"speculators", "layers.0", speculators},
      {"DeepSpec", "layers.0", {{"target_layer_ids", {1, 2, 5}}}},
      {"llama.cpp", "blk.0", {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.producer + c.more.dump());
    SmallHead file = small_head(c.layer);
    if (c.more.contains("transformer_layer_config")) file.config.clear();
    if (c.more.is_object()) file.config.update(c.more);
    const Head head = read(file);
    EXPECT_EQ(head.producer, c.producer);
    EXPECT_EQ(head.output_tokens, kTokens);
    const ModelSpec& spec = spec_of(head);
    EXPECT_EQ(spec.vocabulary, kSmallVocabulary);
    EXPECT_EQ(spec.embedding, kSmallWidth);
    EXPECT_EQ(spec.context_trained, 128);
    EXPECT_EQ(spec.embedding_scale, 1);
    EXPECT_FLOAT_EQ(spec.norm_eps, 1e-6f);
    ASSERT_EQ(spec.n_layers(), 1);
    const std::vector<Operation>& operations = spec.layers[0].operations;
    ASSERT_EQ(operations.size(), 2u);
    EXPECT_TRUE(operations[0].reads_token);
    EXPECT_EQ(operations[0].pre_norm, Role::attention_norm);
    const Attention& attention = std::get<Attention>(operations[0].body);
    EXPECT_EQ(attention.n_heads, kSmallHeads);
    EXPECT_EQ(attention.n_kv_heads, kSmallKvHeads);
    EXPECT_EQ(attention.key_dim, kSmallHeadDim);
    EXPECT_EQ(attention.value_dim, kSmallHeadDim);
    EXPECT_EQ(attention.first_key, 1);
    EXPECT_EQ(attention.scale, 0.5);
    EXPECT_FALSE(attention.has_bias || attention.has_output_bias);
    EXPECT_EQ(attention.qk_norm, HeadNorm::none);
    // llama.cpp's q and k lie in another order.
    const bool is_gguf = head.producer == "llama.cpp";
    EXPECT_EQ(attention.rope->pairing, is_gguf ? RopePairing::adjacent : RopePairing::halves);
    EXPECT_EQ(std::get<Mlp>(operations[1].body), Mlp{.width = kSmallFfn});
    const EagleInput& eagle = *spec.eagle;
    EXPECT_EQ(eagle.tap_width, kSmallWidth);
    EXPECT_EQ(eagle.feature_norm, EagleInput::Norm::none);
    EXPECT_FALSE(eagle.residual_is_normed || eagle.state_is_normed);
    for (const Role role :
         {Role::token_embedding, Role::output_norm, Role::output, Role::feature_fusion,
          Role::token_norm, Role::attention_norm, Role::attention_q, Role::attention_k,
          Role::attention_v, Role::attention_output, Role::mlp_norm, Role::mlp_gate, Role::mlp_up,
          Role::mlp_down})
      EXPECT_NE(head.model.weight(role), nullptr) << static_cast<int>(role);
    EXPECT_EQ(head.model.weight(Role::token_norm)->name.find("hidden"), std::string::npos);
    EXPECT_EQ(head.model.weight(Role::attention_norm)->name,
              is_gguf ? "blk.0.attn_norm_2.weight" : c.layer + std::string(".hidden_norm.weight"));
  }
}

// Producers number layers by their outputs or by what they read; here all are outputs.
TEST(Head, Taps) {
  struct Case {
    const char *name, *layer;
    json more;
    std::vector<int> taps;
    int n_layers = 6, n = 3;
  };
  const char* const ids = "eagle_aux_hidden_state_layer_ids";
  const json none = json::array();
  const Case cases[] = {
      {"SafeAILab's own", "midlayer", {}, {1, 2, 2}},
      {"SafeAILab's own, of a larger model", "midlayer", {}, {1, 13, 24}, 28},
      {"SafeAILab's own, of the smallest model", "midlayer", {}, {1, 1, 1}, 5},
      {"SpecForge: outputs", "midlayer", {{"eagle_config", {{ids, {0, 3, 5}}}}}, {0, 3, 5}},
      {"SpecForge: none listed", "midlayer", {{"eagle_config", {{ids, none}}}}, {1, 2, 2}},
      {"one: the last",
       "midlayer",
       {{"eagle_config", {{"use_aux_hidden_state", false}}}},
       {6},
       6,
       1},
      {"speculators: inputs",
       "layers.0",
       {{"speculators_model_type", "eagle3"}, {ids, {1, 3, 5}}},
       {0, 2, 4}},
      {"vLLM: the embedding and the end", "layers.0", {{ids, {0, 2, 6}}}, {-1, 1, 6}},
      {"vLLM: two", "layers.0", {{ids, {2, 4}}}, {1, 3}, 6, 2},
      {"vLLM: null", "layers.0", {{ids, nullptr}}, {1, 2, 2}},
      {"DeepSpec: outputs", "layers.0", {{"target_layer_ids", {1, 3, 5}}}, {1, 3, 5}},
      {"llama.cpp: inputs", "blk.0", {}, {1, 2, 6}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    SmallHead file = small_head(c.layer);
    if (c.more.is_object()) file.config.update(c.more);
    file.add("fc.weight", {c.n * kSmallWidth, kSmallWidth});
    EXPECT_EQ(file.read(small_target(c.n_layers)).model.spec.eagle->taps, c.taps);
  }
  SmallHead older = small_head("blk.0");
  older.metadata["eagle3.extract_layers"] = std::vector<std::int64_t>{1, 1, 1};
  EXPECT_EQ(read(older).model.spec.eagle->taps, (std::vector<int>{1, 2, 6}));
  older.metadata.erase("eagle3.target_layers");
  EXPECT_EQ(read(older).model.spec.eagle->taps, (std::vector<int>{0, 0, 0}));
}

TEST(Head, OutputTokens) {
  SmallHead head = small_head();
  head.tensors.erase("d2t");
  head.config.erase("draft_vocab_size");
  head.add("lm_head.weight", {kSmallWidth, kSmallVocabulary});
  EXPECT_TRUE(read(head).output_tokens.empty());
  head.set_d2t(std::vector<std::int64_t>(kSmallVocabulary));  // each token its own row
  EXPECT_TRUE(read(head).output_tokens.empty());
  std::vector<std::int64_t> turned(kSmallVocabulary, 1);
  turned.back() = -kSmallVocabulary + 1;
  head.set_d2t(turned);
  EXPECT_EQ(read(head).output_tokens.front(), 1);
  EXPECT_EQ(read(head).output_tokens.back(), 0);
  SmallHead ignored = small_head();
  ignored.set<std::uint8_t>("t2d", TensorType::boolean, {kSmallVocabulary},
                            std::vector<std::uint8_t>(kSmallVocabulary));
  ignored.add("midlayer.self_attn.rotary_emb.inv_freq", {2});
  EXPECT_EQ(read(ignored).output_tokens, kTokens);
}

TEST(Head, NormsOfFeatures) {
  using Norm = EagleInput::Norm;
  SmallHead whole = small_head("layers.0");
  whole.config["norm_before_fc"] = true;
  whole.add("input_norm.weight", {3 * kSmallWidth});
  Head head = read(whole);
  EXPECT_EQ(spec_of(head).eagle->feature_norm, Norm::whole);
  EXPECT_EQ(head.model.weight(Role::feature_norm)->shape,
            std::vector<std::int64_t>{3 * kSmallWidth});

  SmallHead each = small_head("layers.0");
  std::vector<float> expected;
  for (int tap = 0; tap < 3; ++tap) {
    const std::vector<float> values(kSmallWidth, 1 + static_cast<float>(tap));
    each.set("fc_norm." + std::to_string(tap) + ".weight", TensorType::f32, {kSmallWidth}, values);
    expected.insert(expected.end(), values.begin(), values.end());
  }
  head = read(each);
  EXPECT_EQ(spec_of(head).eagle->feature_norm, Norm::each);
  EXPECT_FALSE(spec_of(head).eagle->state_is_normed);
  EXPECT_EQ(values_of(*head.model.weight(Role::feature_norm)), expected);
  each.config["norm_output"] = true;  // of EAGLE-3.1
  EXPECT_TRUE(read(each).model.spec.eagle->state_is_normed);
  SmallHead other = small_head();  // SpecForge means something else
  other.config["norm_output"] = true;
  EXPECT_FALSE(read(other).model.spec.eagle->state_is_normed);
  other.config["norm_before_residual"] = true;
  EXPECT_TRUE(read(other).model.spec.eagle->residual_is_normed);
  SmallHead gguf = small_head("blk.0");
  gguf.metadata["eagle3.norm_before_residual"] = true;
  EXPECT_TRUE(read(gguf).model.spec.eagle->residual_is_normed);
}

// What a head does not have is its target's, which stays alive with it.
TEST(Head, TensorsOfTheTarget) {
  const auto name_of = [](const Head& head, Role role) { return head.model.weight(role)->name; };
  SmallHead file = small_head();
  file.add("embed_tokens.weight", {kSmallWidth, kSmallVocabulary});
  EXPECT_EQ(name_of(read(file), Role::token_embedding), "embed_tokens.weight");
  EXPECT_EQ(name_of(read(file), Role::output), "lm_head.weight");
  for (const char* name : {"embed_tokens.weight", "lm_head.weight", "d2t"})
    file.tensors.erase(name);
  EXPECT_EQ(name_of(read(file), Role::output), "output.weight");
  EXPECT_TRUE(read(file).output_tokens.empty());  // whatever draft_vocab_size says
  std::optional<Model> tied = small_target(6, true);
  const std::weak_ptr<const Checkpoint> checkpoint = tied->checkpoint;
  {
    const Head head = file.read(*tied);
    tied.reset();
    EXPECT_FALSE(checkpoint.expired());
    for (const Role role : {Role::output, Role::token_embedding})
      EXPECT_EQ(name_of(head, role), "token_embd.weight");
  }
  EXPECT_TRUE(checkpoint.expired());
}

TEST(Head, AnotherWidthThanItsTarget) {
  SmallHead head = small_head();
  constexpr std::int64_t kWidth = 4;
  head.config.update({{"hidden_size", kWidth}, {"head_dim", kSmallHeadDim}});
  head.config["target_hidden_size"] = kSmallWidth;
  head.add("fc.weight", {3 * kSmallWidth, kWidth});
  for (auto& [name, tensor] : head.tensors) {
    if (name == "fc.weight" || name == "d2t") continue;
    std::vector<std::int64_t> shape = tensor.shape;
    if (shape.front() == kSmallWidth && !name.ends_with("o_proj.weight")) shape.front() = kWidth;
    if (shape.front() == 2 * kSmallWidth) shape.front() = 2 * kWidth;
    if (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight")) shape[1] = kWidth;
    head.add(name, shape);
  }
  head.add("embed_tokens.weight", {kWidth, kSmallVocabulary});
  const Head narrow = read(head);
  EXPECT_EQ(spec_of(narrow).embedding, kWidth);
  EXPECT_EQ(spec_of(narrow).eagle->tap_width, kSmallWidth);
}

TEST(Head, SeveralLayers) {
  SmallHead file = small_head("layers.0");
  file.config["num_hidden_layers"] = 3;
  add_layer(file, 1);
  add_layer(file, 2);
  const Head head = read(file);
  ASSERT_EQ(spec_of(head).n_layers(), 3);
  EXPECT_TRUE(spec_of(head).layers[0].operations[0].reads_token);
  EXPECT_FALSE(spec_of(head).layers[1].operations[0].reads_token);
  EXPECT_EQ(head.model.weight(Role::token_norm, 1), nullptr);
  EXPECT_EQ(head.model.weight(Role::attention_norm, 2)->name, "layers.2.input_layernorm.weight");
  EXPECT_EQ(head.model.weight(Role::attention_q, 2)->columns(), kSmallWidth);
}

TEST(Head, BiasesAndNormsOfAttention) {
  SmallHead file = small_head("layers.0");
  file.add("layers.0.self_attn.q_proj.bias", {kSmallHeads * kSmallHeadDim});
  file.add("layers.0.self_attn.k_proj.bias", {kSmallKvHeads * kSmallHeadDim});
  file.add("layers.0.self_attn.v_proj.bias", {kSmallKvHeads * kSmallHeadDim});
  EXPECT_TRUE(attention_of(file).has_bias);
  EXPECT_FALSE(attention_of(file).has_output_bias);
  file.add("layers.0.self_attn.o_proj.bias", {kSmallWidth});
  EXPECT_TRUE(attention_of(file).has_output_bias);
  file.add("layers.0.self_attn.q_norm.weight", {kSmallHeadDim});
  file.add("layers.0.self_attn.k_norm.weight", {kSmallHeadDim});
  EXPECT_EQ(attention_of(file).qk_norm, HeadNorm::shared);
}

TEST(Head, Rope) {
  constexpr int kDims = kSmallHeadDim;
  using Frequencies = std::vector<double>;
  struct Case {
    const char* name;
    json more;
    Frequencies frequencies;
    double magnitude = 1;
  };
  const auto plain = [](double base) { return rope_frequencies(kDims, base); };
  const auto divided = [](Frequencies frequencies, double by) {
    for (double& frequency : frequencies) frequency /= by;
    return frequencies;
  };
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 1024}};
  // One pair turns 163 times within the length and is kept; the other turns 1.63 times: 0.21 kept.
  const double turns = 1024 * 0.01 / (2 * std::numbers::pi), kept = (turns - 1) / 3;
  const Frequencies slowed = {1, 0.01 * (kept + (1 - kept) / 8)};
  const json yarn = {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
  const Frequencies yarned = yarn_frequencies(kDims, 10000, {.factor = 4, .trained_length = 1024});
  json yarn_with_magnitude = yarn;
  yarn_with_magnitude.update({{"attention_factor", 1.5}, {"beta_fast", 32}, {"beta_slow", 1}});
  const Case cases[] = {
      {"missing: 10000, whatever the target has", {}, plain(10000)},
      {"given", {{"rope_theta", 500000}}, plain(500000)},
      {"in rope_parameters",
       {{"rope_parameters", {{"rope_theta", 5e5}, {"rope_type", "default"}}}},
       plain(5e5)},
      {"null scaling", {{"rope_theta", 500000}, {"rope_scaling", nullptr}}, plain(500000)},
      {"scaling without a type", {{"rope_scaling", {{"factor", 2}}}}, plain(10000)},
      {"linear", {{"rope_scaling", {{"type", "linear"}, {"factor", 4}}}}, divided(plain(10000), 4)},
      {"llama3", {{"rope_scaling", llama3}}, slowed},
      {"llama3 in rope_parameters", {{"rope_parameters", llama3}}, slowed},
      {"yarn", {{"rope_scaling", yarn}}, yarned, yarn_magnitude(4)},
      {"yarn with its magnitude", {{"rope_scaling", yarn_with_magnitude}}, yarned, 1.5},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    SmallHead head = small_head();
    if (c.more.is_object()) head.config.update(c.more);
    const Rope rope = *attention_of(head).rope;
    EXPECT_EQ(rope.magnitude, c.magnitude);
    ASSERT_EQ(rope.frequencies.size(), c.frequencies.size());
    for (std::size_t i = 0; i < rope.frequencies.size(); ++i)
      EXPECT_NEAR(rope.frequencies[i], c.frequencies[i], 1e-12) << i;
  }
  SmallHead gguf = small_head("blk.0");
  gguf.metadata["eagle3.rope.freq_base"] = 500000.0;
  gguf.metadata["eagle3.rope.scaling.type"] = "linear";
  gguf.metadata["eagle3.rope.scaling.factor"] = 2.0;
  gguf.set<float>("rope_freqs.weight", TensorType::f32, {2}, {1, 8});
  EXPECT_EQ(attention_of(gguf).rope->frequencies,
            (Frequencies{0.5, rope_frequencies(kDims, 500000)[1] / 16}));
}

TEST(Head, ATensorAtAnyByteIsRead) {
  SmallHead file = small_head();
  file.tensors["norm.weight"].shift = 1;
  const Head head = read(file);
  const TensorView& norm = *head.model.weight(Role::output_norm);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(norm.bytes.data()) % 4, 0u);
  EXPECT_EQ(values_of(norm), values_of(*read(small_head()).model.weight(Role::output_norm)));
}

struct Refusal {
  const char* layer;
  std::function<void(SmallHead&)> change;
  const char* message;  // after the name of the file
};

void expect_refusals(std::span<const Refusal> refusals, const std::string& file) {
  for (const Refusal& refusal : refusals) {
    SmallHead head = small_head(refusal.layer);
    refusal.change(head);
    try {
      read(head);
      ADD_FAILURE() << "not refused: " << refusal.message;
    } catch (const Error& error) {
      const std::string name = std::string(refusal.layer) == "blk.0" ? "dir/head.gguf" : file;
      EXPECT_EQ(error.what(), name + ": " + refusal.message);
    }
  }
}

std::function<void(SmallHead&)> with(json more) {
  return [more](SmallHead& head) { head.config.update(more); };
}
std::function<void(SmallHead&)> with_value(std::string key, MetadataValue value) {
  return [=](SmallHead& head) { head.metadata[key] = value; };
}
std::function<void(SmallHead&)> without(std::string name) {
  return [=](SmallHead& head) {
    head.tensors.erase(name);
    head.config.erase(name);
    head.metadata.erase(name);
  };
}
std::function<void(SmallHead&)> with_shape(std::string name, std::vector<std::int64_t> shape) {
  return [=](SmallHead& head) { head.add(name, shape); };
}
// A tensor without elements.
std::function<void(SmallHead&)> with_empty(std::string name, std::vector<std::int64_t> shape) {
  return [=](SmallHead& head) {
    head.tensors[name].shape = shape;
    head.tensors[name].bytes.clear();
  };
}
std::function<void(SmallHead&)> with_tokens(std::vector<std::int64_t> d2t) {
  return [=](SmallHead& head) { head.set_d2t(d2t); };
}
std::function<void(SmallHead&)> with_number(std::string name, float number) {
  return [=](SmallHead& head) {
    std::vector<std::byte>& bytes = head.tensors.at(name).bytes;
    std::memcpy(&bytes[bytes.size() - sizeof(number)], &number, sizeof(number));
  };
}

TEST(Head, WhatTensorsDoNotSayIsRefused) {
  const auto whole_model = [](SmallHead& head) {
    head.tensors.clear();
    head.add("model.layers.0.self_attn.q_proj.weight", {8, 8});
  };
  const auto nothing = [](SmallHead& head) { head.tensors.clear(); };
  const auto other_types = [](SmallHead& head) {
    head.set<std::int32_t>("d2t", TensorType::i32, {5}, {0, 1, 2, 4, 11});
  };
  const auto table = [](SmallHead& head) {
    head.set<std::int64_t>("norm.weight", TensorType::i64, {8}, std::vector<std::int64_t>(8));
  };
  const auto layers_missing = [](SmallHead& head) {
    head.config["num_hidden_layers"] = 2;
    add_layer(head, 1);
    head.tensors.erase("layers.1.mlp.up_proj.weight");
  };
  const auto norm_of_one_tap = [](SmallHead& head) { head.add("fc_norm.0.weight", {8}); };
  const auto no_rows = [](SmallHead& head) {
    head.config.erase("draft_vocab_size");
    head.set_d2t({});
    head.tensors["lm_head.weight"] = {TensorType::f32, {8, 0}};
  };
  constexpr std::int64_t kHuge = std::int64_t{1} << 60;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = -std::numeric_limits<float>::infinity();
  const Refusal refusals[] = {
      {"midlayer", nothing,
       "is no EAGLE-3 head: it has neither midlayer.self_attn.q_proj.weight nor "
       "layers.0.self_attn.q_proj.weight; expected the files that its publisher made for "
       "SafeAILab's EAGLE, SpecForge, vLLM or llama.cpp"},
      {"midlayer", whole_model,
       "is a whole model, no head; as a draft model it is read in GGUF: convert its folder with "
       "llama.cpp's convert_hf_to_gguf.py and give that file"},
      {"layers.0", without("layers.0.hidden_norm.weight"),
       "tensor layers.0.hidden_norm.weight is missing; the head is incomplete, or of a kind that "
       "this version does not support"},
      {"midlayer", without("fc.weight"),
       "tensor fc.weight is missing; a head that reads no layers of its target is not supported in "
       "this version"},
      {"midlayer", without("midlayer.mlp.up_proj.weight"),
       "tensor midlayer.mlp.up_proj.weight is missing; the head is incomplete, or of a kind that "
       "this version does not support"},
      {"layers.0", layers_missing,
       "tensor layers.1.mlp.up_proj.weight is missing; the head is incomplete, or of a kind that "
       "this version does not support"},
      {"blk.0", without("blk.0.attn_q.weight"),
       "tensor blk.0.attn_q.weight is missing; the head is incomplete, or of a kind that this "
       "version does not support"},
      {"layers.0", norm_of_one_tap,
       "tensor fc_norm.1.weight is missing; the head is incomplete, or of a kind that this version "
       "does not support"},
      {"midlayer", with_shape("mask_hidden\n", {8}),
       "tensor mask_hidden\\x0a has no place in an EAGLE-3 head; this variant is not supported in "
       "this version"},
      {"midlayer", with_shape("midlayer.mlp.up_proj.bias", {12}),
       "tensor midlayer.mlp.up_proj.bias has no place in an EAGLE-3 head; this variant is not "
       "supported in this version"},
      {"layers.0", [](SmallHead& head) { add_layer(head, 1); },
       "tensor layers.1.input_layernorm.weight has no place in an EAGLE-3 head; this variant is "
       "not "
       "supported in this version"},

      // Shapes.
      {"midlayer", with_shape("norm.weight", {9}),
       "tensor norm.weight is [9], expected [8]; the head is for another model, or its config.json "
       "is another head's"},
      {"midlayer", with_shape("norm.weight", {}),
       "tensor norm.weight is [], expected [8]; the head is for another model, or its config.json "
       "is another head's"},
      {"midlayer", with_empty("norm.weight", {0}),
       "tensor norm.weight is [0], expected [8]; the head is for another model, or its config.json "
       "is another head's"},
      {"midlayer", with_shape("midlayer.self_attn.q_proj.weight", {8, 8}),
       "tensor midlayer.self_attn.q_proj.weight is [8, 8], expected [16, 8]; the head is for "
       "another "
       "model, or its config.json is another head's"},
      {"midlayer", with_shape("embed_tokens.weight", {8, 15}),
       "tensor embed_tokens.weight is [8, 15], expected [8, 16]; the head is for another model, or "
       "its config.json is another head's"},
      {"midlayer", with_shape("fc.weight", {25, 8}),
       "fc.weight reads 25 numbers, no multiple of the width 8 of target.gguf; the head is for "
       "another model"},
      {"midlayer", with_empty("fc.weight", {0, 8}),
       "fc.weight reads 0 numbers, no multiple of the width 8 of target.gguf; the head is for "
       "another model"},
      {"midlayer", with_shape("fc.weight", {}),
       "fc.weight reads 1 numbers, no multiple of the width 8 of target.gguf; the head is for "
       "another model"},
      {"midlayer", with_empty("fc.weight", {kHuge, 0}),
       "fc.weight reads 144115188075855872 layers of the target, but target.gguf has 6; the head "
       "is "
       "for another model"},
      {"midlayer", with_empty("fc.weight", {24, 0}),
       "tensor fc.weight is [24, 0], expected [24, 8]; the head is for another model, or its "
       "config.json is another head's"},
      {"midlayer", table, "tensor norm.weight is I64, expected weights"},

      // Numbers.
      {"midlayer", with_number("midlayer.mlp.down_proj.weight", nan),
       "tensor midlayer.mlp.down_proj.weight holds NaN or infinite numbers; the head is damaged"},
      {"midlayer", with_number("norm.weight", infinite),
       "tensor norm.weight holds NaN or infinite numbers; the head is damaged"},

      // The draft vocabulary.
      {"midlayer", with_tokens({0, 1, 2, 4, 12}),
       "d2t names token 16 for row 4, but the vocabulary of target.gguf has 16; the head is for "
       "another model"},
      {"midlayer", with_tokens({0, -2, 2, 4, 11}),
       "d2t names token -2 for row 1, but the vocabulary of target.gguf has 16; the head is for "
       "another model"},
      {"midlayer", with_tokens({0, 1, 2, 4, std::numeric_limits<std::int64_t>::max()}),
       "d2t names token 9223372036854775807 for row 4, but the vocabulary of target.gguf has 16; "
       "the head is for another model"},
      {"blk.0", with_tokens({0, 1, 2, 3, 16}),
       "d2t names token 16 for row 4, but the vocabulary of target.gguf has 16; the head is for "
       "another model"},
      {"midlayer", with_tokens({0, 1, 2, -1, 11}), "d2t names token 2 twice; the head is damaged"},
      {"blk.0", with_tokens({3, 1, 2, 3, 4}), "d2t names token 3 twice; the head is damaged"},
      {"midlayer", other_types, "tensor d2t is I32 [5], expected a list of I64"},
      {"midlayer", no_rows, "tensor d2t is I64 [0], expected a list of I64"},
      {"midlayer",
       [](SmallHead& head) {
         head.tensors["d2t"].shape = {5, 1};
       },
       "tensor d2t is I64 [5, 1], expected a list of I64"},
      {"midlayer", without("lm_head.weight"),
       "d2t names 5 tokens, but tensor lm_head.weight, which has their rows, is missing"},
      {"midlayer", with_shape("lm_head.weight", {8, 6}),
       "tensor lm_head.weight is [8, 6], expected [8, 5]; the head is for another model, or its "
       "config.json is another head's"},
  };
  expect_refusals(refusals, "dir/head.safetensors");
}

TEST(Head, WhatItsConfigSaysWronglyIsRefused) {
  const char* const ids = "eagle_aux_hidden_state_layer_ids";
  const auto two_taps = [](SmallHead& head) { head.add("fc.weight", {16, 8}); };
  const auto no_table = [](SmallHead& head) { head.tensors.erase("d2t"); };
  const auto not_an_object = [](SmallHead& head) { head.config = json::array(); };
  const Refusal refusals[] = {
      {"midlayer", not_an_object, "it is array, expected an object"},
      {"midlayer", without("hidden_size"), "hidden_size is missing"},
      {"midlayer", with({{"hidden_size", "8"}}),
       "hidden_size is \"8\", expected an integer from 1 to 1048576"},
      {"midlayer", with({{"hidden_size", 8.0}}),
       "hidden_size is 8.0, expected an integer from 1 to 1048576"},
      {"midlayer", with({{"hidden_size", std::numeric_limits<std::uint64_t>::max()}}),
       "hidden_size is 18446744073709551615, expected an integer from 1 to 1048576"},
      {"midlayer", with({{"intermediate_size", 0}}),
       "intermediate_size is 0, expected an integer from 1 to 16777216"},
      {"midlayer", with({{"num_attention_heads", -2}}),
       "num_attention_heads is -2, expected an integer from 1 to 4096"},
      {"midlayer", with({{"rms_norm_eps", true}}),
       "rms_norm_eps is true, expected a number from 1e-30 to 1"},
      {"midlayer", with({{"norm_before_residual", 1}}),
       "norm_before_residual is 1, expected true or false"},
      {"midlayer", with({{"hidden_act", "gelu"}}),
       "hidden_act is \"gelu\", which is not supported in this version; expected \"silu\""},
      {"midlayer", with({{"hidden_act", 5}}), "hidden_act is 5, expected a string"},
      {"layers.0", with({{"transformer_layer_config", json::array()}}),
       "transformer_layer_config is array, expected an object"},
      {"layers.0", with({{"transformer_layer_config", {{"hidden_size", 0}}}}),
       "transformer_layer_config.hidden_size is 0, expected an integer from 1 to 1048576"},

      // Heads and layers.
      {"midlayer", with({{"num_attention_heads", 3}, {"num_key_value_heads", 2}}),
       "num_attention_heads is 3, but num_key_value_heads is 2, expected a divisor of it"},
      {"midlayer", with({{"num_attention_heads", 3}}),
       "head_dim is missing, and hidden_size is 8, which 3 heads cannot share evenly"},
      {"midlayer", with({{"head_dim", 5}}),
       "heads have 5 channels, expected an even number up to 4096"},
      {"midlayer", with({{"head_dim", 4098}}),
       "head_dim is 4098, expected an integer from 2 to 4096"},
      {"midlayer", with({{"num_hidden_layers", 2}}),
       "num_hidden_layers is 2, but midlayer is a single one; expected 1"},
      {"layers.0", with({{"num_hidden_layers", 251}}),
       "num_hidden_layers is 251; with the 6 of target.gguf these are more than the 256 supported"},
      {"layers.0", with({{"num_hidden_layers", 257}}),
       "num_hidden_layers is 257, expected an integer from 1 to 256"},

      // The target.
      {"midlayer", with({{"target_hidden_size", 16}}),
       "target_hidden_size is 16, but the width of target.gguf is 8; the head is for another "
       "model"},
      {"midlayer", with({{"draft_vocab_size", 6}}),
       "draft_vocab_size is 6, but d2t names 5 tokens"},
      {"midlayer", no_table,
       "draft_vocab_size is 5, but there is no d2t, and the target has 16 tokens"},
      {"layers.0", with({{"norm_before_fc", true}}),
       "norm_before_fc is true, but tensor input_norm.weight is missing"},

      // Taps.
      {"layers.0", with({{ids, {1, 2}}}),
       "eagle_aux_hidden_state_layer_ids lists 2 layers, but fc.weight reads 3; the head is for "
       "another model, or its config.json is another head's"},
      {"layers.0", with({{ids, {1, 2, 7}}}),
       "eagle_aux_hidden_state_layer_ids lists 7, but target.gguf has 6 layers; the head is for "
       "another model"},
      {"layers.0", with({{ids, {-1, 2, 3}}}),
       "eagle_aux_hidden_state_layer_ids lists -1, but target.gguf has 6 layers; the head is for "
       "another model"},
      {"layers.0", with({{"target_layer_ids", {1, 2, 28}}}),
       "target_layer_ids lists 28, but target.gguf has 6 layers; the head is for another model"},
      {"midlayer", with({{"eagle_config", {{ids, {1, 2, 28}}}}}),
       "eagle_config.eagle_aux_hidden_state_layer_ids lists 28, but target.gguf has 6 layers; the "
       "head is for another model"},
      {"midlayer", with({{ids, "1,2,3"}}),
       "eagle_aux_hidden_state_layer_ids is \"1,2,3\", expected a list of integers from -1 to "
       "1048576"},
      {"midlayer", with({{ids, {1, 2, std::numeric_limits<std::uint64_t>::max()}}}),
       "eagle_aux_hidden_state_layer_ids is [1,2,18446744073709551615], expected a list of "
       "integers "
       "from -1 to 1048576"},
      {"midlayer", two_taps,
       "eagle_aux_hidden_state_layer_ids is missing, so it is not known which 2 layers of the "
       "target "
       "fc.weight reads"},

      // Rope.
      {"midlayer", with({{"rope_theta", 0.5}}),
       "rope_theta is 0.5, expected a number from 1 to 1000000000000"},
      {"midlayer", with({{"rope_scaling", {{"rope_type", "longrope"}}}}),
       "rope_scaling.rope_type is \"longrope\", which is not supported in this version; expected "
       "default, linear, llama3 or yarn"},
      {"midlayer", with({{"rope_scaling", {{"type", "dynamic"}}}}),
       "rope_scaling.type is \"dynamic\", which is not supported in this version; expected "
       "default, "
       "linear, llama3 or yarn"},
      {"midlayer", with({{"rope_parameters", {{"sliding_attention", {{"rope_type", "default"}}}}}}),
       "rope_parameters.sliding_attention gives each kind of layer a rope of its own, which is not "
       "supported in this version"},
      {"midlayer", with({{"partial_rotary_factor", 0.5}}),
       "partial_rotary_factor is 0.5, which is not supported in this version; expected 1"},
      {"midlayer", with({{"rope_scaling", 5}}), "rope_scaling is number, expected an object"},
      {"midlayer", with({{"rope_scaling", {{"type", "yarn"}, {"factor", 2}}}}),
       "rope_scaling.original_max_position_embeddings is missing"},
      {"midlayer", with({{"rope_scaling", {{"type", "linear"}, {"factor", 0.5}}}}),
       "rope_scaling.factor is 0.5, expected a number from 1 to 1000000"},
      {"midlayer",
       with({{"rope_parameters",
              {{"rope_type", "llama3"}, {"low_freq_factor", 4}, {"high_freq_factor", 4}}}}),
       "rope_parameters.high_freq_factor is 4, expected more than rope_parameters.low_freq_factor, "
       "which is 4"},

      // GGUF.
      {"blk.0", without("eagle3.embedding_length"), "eagle3.embedding_length is missing"},
      {"blk.0", with_value("eagle3.attention.head_count", "two"),
       "eagle3.attention.head_count is \"two\", expected an integer from 1 to 4096"},
      {"blk.0", with_value("eagle3.target_layers", std::vector<std::int64_t>{1, 2, 9}),
       "eagle3.target_layers lists 9, but target.gguf has 6 layers; the head is for another model"},
      {"blk.0", with_value("eagle3.rope.scaling.type", "su"),
       "eagle3.rope.scaling.type is \"su\", which is not supported in this version; expected "
       "default, linear, llama3 or yarn"},
      {"blk.0", with_shape("rope_freqs.weight", {3}),
       "tensor rope_freqs.weight is F32 [3], expected F32 [2]"},
      {"blk.0", with_shape("rope_freqs.weight", {2}),
       "tensor rope_freqs.weight holds 0.5, expected numbers from 0.7 to 1e6"},
  };
  expect_refusals(refusals, "dir/config.json");
  try {
    small_head().read(small_target(4));
    ADD_FAILURE() << "taps of four layers are not known";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "dir/config.json: eagle_aux_hidden_state_layer_ids is missing, so it is not known "
                 "which 3 layers of the target fc.weight reads");
  }
}

// A head of another width, or for another model of the same width.
TEST(Head, AHeadOfAnotherModelIsRefused) {
  SmallHead head = small_head();
  head.config.update({{"hidden_size", 16}, {"head_dim", 4}});
  for (auto& [name, tensor] : std::map(head.tensors)) {
    if (name == "d2t") continue;
    std::vector<std::int64_t> shape = tensor.shape;
    for (std::int64_t& extent : shape)
      if (extent != kSmallFfn && extent != kSmallRows) extent *= 2;
    head.add(name, shape);
  }
  const auto message = [&] {
    try {
      read(head);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message(),
            "dir/head.safetensors: has no embedding of its own, and its width is 16, but that of "
            "target.gguf is 8; the head is for another model");
  head.add("embed_tokens.weight", {16, kSmallVocabulary});
  EXPECT_EQ(message(),
            "dir/config.json: eagle_aux_hidden_state_layer_ids is missing, so it is not known "
            "which 6 layers of the target fc.weight reads");
  head.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = {1, 2, 3};
  EXPECT_EQ(message(),
            "dir/config.json: eagle_config.eagle_aux_hidden_state_layer_ids lists 3 layers, but "
            "fc.weight reads 6; the head is for another model, or its config.json is another "
            "head's");
}

json made_for_small_target() {
  return {{"target",
           {{"name", "small"},
            {"file", std::string(64, 'f')},
            {"vocabulary", std::string(64, '0')},
            {"embedding", kSmallWidth},
            {"layers", 6},
            {"vocabulary_size", kSmallVocabulary}}},
          {"agreement", {{"right", 3}, {"places", 4}, {"type", "Q8_0"}}},
          {"recipe", {{"hours", 2}}}};
}

// An eagle head that leaves its reading open otherwise, with this object of outrider's.
SmallHead head_made_for(const json& object) {
  SmallHead head = small_head();
  head.config["eagle_config"] = {{"eagle_aux_hidden_state_layer_ids", {0, 3, 4}}};
  if (!object.is_null()) head.config["outrider"] = object;
  return head;
}

TEST(Head, WhatItWasMadeFor) {
  const Head other = read(head_made_for(nullptr));
  EXPECT_FALSE(other.made_for);
  EXPECT_EQ(other.other_readings.size(), 1u);
  json object = made_for_small_target();
  const Head head = read(head_made_for(object));
  ASSERT_TRUE(head.made_for);
  EXPECT_TRUE(head.other_readings.empty());
  EXPECT_EQ(spec_of(head).eagle->taps, (std::vector{0, 3, 4}));
  const auto first_key = [](const Head& head) {
    return attention_of(head.model.spec.layers[0])->first_key;
  };
  EXPECT_EQ(first_key(head), 1);
  object["first_row"] = 2;
  EXPECT_EQ(first_key(read(head_made_for(object))), 2);
  EXPECT_EQ(head.made_for->name, "small");
  EXPECT_EQ(head.made_for->file, std::string(64, 'f'));
  EXPECT_EQ(head.made_for->vocabulary, std::string(64, '0'));
  ASSERT_TRUE(head.made_for->agreement);
  EXPECT_EQ(head.made_for->agreement->share(), 0.75);
  EXPECT_EQ(head.made_for->type, "Q8_0");
  object.erase("agreement");
  EXPECT_FALSE(read(head_made_for(object)).made_for->agreement);
}

TEST(Head, WhatItWasMadeForIsRefusedIfMalformed) {
  const auto refusal = [](const json& object) {
    try {
      read(head_made_for(object));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(7), "dir/config.json: outrider is number, expected an object");
  json rows = made_for_small_target();
  rows["first_row"] = 3;
  EXPECT_EQ(refusal(rows),
            "dir/config.json: outrider.first_row is 3, expected an integer from 1 to 2");
  EXPECT_EQ(refusal(json::object()), "dir/config.json: outrider.target is missing");
  struct Case {
    const char* pointer;
    json value;
    const char* message;
  };
  const std::string digits = ", expected 64 hexadecimal digits in lower case";
  const Case cases[] = {
      {"/target/name", nullptr, "outrider.target.name is missing"},
      {"/target/name", 1, "outrider.target.name is 1, expected a string"},
      {"/target/file", "ab", "outrider.target.file is \"ab\"#"},
      {"/target/file", std::string(63, '0') + "\n",
       "outrider.target.file is \"000000000000000000000000000000000000000000000000000000000000000"
       "\\x0a\"#"},
      {"/target/vocabulary", "AB", "outrider.target.vocabulary is \"AB\"#"},
      {"/target/layers", 0, "outrider.target.layers is 0, expected an integer from 1 to 16777216"},
      {"/target/vocabulary_size", "16",
       "outrider.target.vocabulary_size is \"16\", expected an integer from 1 to 16777216"},
      {"/agreement", json::array(), "outrider.agreement is array, expected an object"},
      {"/agreement/places", 0,
       "outrider.agreement.places is 0, expected an integer from 1 to 16777216"},
      {"/agreement/right", 5, "outrider.agreement.right is 5, expected an integer from 0 to 4"},
      {"/agreement/right", nullptr, "outrider.agreement.right is missing"},
      {"/agreement/type", 8, "outrider.agreement.type is 8, expected a string"},
      {"/target/layers", 7,
       "the head was made for small, which has 7 layers of width 8 and 16 tokens, but target.gguf "
       "has 6 of 8 and 16 tokens"},
      {"/target/embedding", 16,
       "the head was made for small, which has 6 layers of width 16 and 16 tokens, but "
       "target.gguf has 6 of 8 and 16 tokens"},
      {"/target/vocabulary_size", 15,
       "the head was made for small, which has 6 layers of width 8 and 15 tokens, but target.gguf "
       "has 6 of 8 and 16 tokens"},
  };
  for (const Case& c : cases) {
    json object = made_for_small_target();
    object[json::json_pointer(c.pointer)] = c.value;
    std::string message = std::string("dir/config.json: ") + c.message;
    if (message.back() == '#') message.replace(message.size() - 1, 1, digits);
    EXPECT_EQ(refusal(object), message);
  }
}

}  // namespace
}  // namespace outrider

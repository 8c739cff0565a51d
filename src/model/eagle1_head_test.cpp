// Heads of EAGLE and EAGLE-2, as SafeAILab writes them, are read or refused in one line.

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>

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

TEST(Eagle1Head, Layer) {
  const Head head = read(small_eagle1());
  EXPECT_EQ(head.kind, "EAGLE");
  EXPECT_EQ(head.producer, "SafeAILab");
  EXPECT_TRUE(head.output_tokens.empty() && head.other_readings.empty());
  const ModelSpec& spec = head.model.spec;
  EXPECT_EQ(spec.vocabulary, kSmallVocabulary);
  EXPECT_EQ(spec.embedding, kSmallWidth);
  EXPECT_FALSE(spec.has_output_norm);
  EXPECT_FLOAT_EQ(spec.norm_eps, 1e-5f);
  const EagleInput expected{
      .taps = {6}, .tap_width = kSmallWidth, .fused = EagleInput::Fused::token_and_state};
  EXPECT_EQ(*spec.eagle, expected);
  ASSERT_EQ(spec.n_layers(), 1);
  const std::vector<Operation>& operations = spec.layers[0].operations;
  EXPECT_FALSE(operations[0].pre_norm || operations[0].reads_token);
  const Attention& attention = std::get<Attention>(operations[0].body);
  EXPECT_EQ(attention.first_key, 1);
  EXPECT_FALSE(attention.has_bias);
  EXPECT_EQ(attention.rope->pairing, RopePairing::halves);
  EXPECT_DOUBLE_EQ(attention.rope->frequencies[1], 0.01);  // of 10000, which no key says
  EXPECT_EQ(operations[1].pre_norm, Role::mlp_norm);
  EXPECT_NE(head.model.weight(Role::feature_fusion_bias), nullptr);
  EXPECT_EQ(head.model.weight(Role::output_norm), nullptr);
  EXPECT_EQ(head.model.weight(Role::attention_norm), nullptr);
  EXPECT_EQ(head.model.weight(Role::output)->name, "output.weight");
  EXPECT_EQ(head.model.weight(Role::token_embedding)->name, "token_embd.weight");
}

TEST(Eagle1Head, Variants) {
  SmallHead file = small_eagle1();
  file.tensors.erase("fc.bias");
  file.config["bias"] = false;
  file.config["rope_theta"] = 1e6;
  for (const char* name : {"q", "k", "v"})
    file.add(fmt::format("layers.0.self_attn.{}_proj.bias", name),
             {name[0] == 'q' ? kSmallHeads * kSmallHeadDim : kSmallKvHeads * kSmallHeadDim});
  file.add("embed_tokens.weight", {kSmallWidth, kSmallVocabulary});
  file.add("lm_head.weight", {kSmallWidth, kSmallVocabulary});
  file.add("layers.0.self_attn.rotary_emb.inv_freq", {2});
  file.config["num_hidden_layers"] = 2;
  for (const auto& [name, tensor] : std::map(file.tensors))
    if (name.starts_with("layers.0.") && !name.ends_with("inv_freq"))
      file.tensors["layers.1." + name.substr(std::strlen("layers.0."))] = tensor;
  file.add("layers.1.input_layernorm.weight", {kSmallWidth});
  const Head head = read(file);
  EXPECT_EQ(head.model.weight(Role::feature_fusion_bias), nullptr);
  const Attention& attention = *attention_of(head.model.spec.layers[0]);
  EXPECT_TRUE(attention.has_bias);
  EXPECT_DOUBLE_EQ(attention.rope->frequencies[1], 1e-3);
  EXPECT_EQ(head.model.weight(Role::output)->name, "lm_head.weight");
  EXPECT_EQ(head.model.weight(Role::token_embedding)->name, "embed_tokens.weight");
  ASSERT_EQ(head.model.spec.n_layers(), 2);
  EXPECT_EQ(head.model.spec.layers[1].operations[0].pre_norm, Role::attention_norm);
  EXPECT_NE(head.model.weight(Role::attention_norm, 1), nullptr);
}

TEST(Eagle1Head, Refused) {
  struct Case {
    std::function<void(SmallHead&)> change;
    std::string error;
  };
  const Case cases[] = {
      {[](SmallHead& head) { head.config = nullptr; },
       "dir/head.safetensors: there is no config.json beside the head, which says how it is built"},
      {[](SmallHead& head) { head.config.erase("hidden_size"); },
       "dir/config.json: hidden_size is missing"},
      {[](SmallHead& head) { head.config["hidden_size"] = 16; },
       "dir/config.json: hidden_size is 16, but the width of target.gguf is 8; the head is for "
       "another model"},
      {[](SmallHead& head) { head.config["num_hidden_layers"] = 300; },
       "dir/config.json: num_hidden_layers is 300, expected an integer from 1 to 256"},
      {[](SmallHead& head) { head.config["hidden_act"] = "gelu"; },
       "dir/config.json: hidden_act is \"gelu\", which is not supported in this version; expected "
       "\"silu\""},
      {[](SmallHead& head) {
         head.tensors.erase("fc.bias");
         head.config["bias"] = true;
       },
       "dir/config.json: bias is true, but tensor fc.bias is missing"},
      {[](SmallHead& head) { head.tensors.erase("layers.0.mlp.up_proj.weight"); },
       "dir/head.safetensors: tensor layers.0.mlp.up_proj.weight is missing; the head is "
       "incomplete, or of a kind that this version does not support"},
      {[](SmallHead& head) { head.add("norm.weight", {kSmallWidth}); },
       "dir/head.safetensors: tensor norm.weight has no place in an EAGLE head; this variant is "
       "not supported in this version"},
      {[](SmallHead& head) {
         head.add("lm_head.weight", {kSmallWidth, 9});
       },
       "dir/head.safetensors: tensor lm_head.weight is [8, 9], expected [8, 16]; the head is for "
       "another model, or its config.json is another head's"},
      {[](SmallHead& head) {
         head.tensors["fusion_fc.weight"] = head.tensors["fc.weight"];
         head.tensors.erase("fc.weight");
       },
       "dir/head.safetensors: tensor fusion_fc.weight: an EAGLE head in speculators' layout, which "
       "is not supported in this version; expected the files of SafeAILab that it was made from"},
  };
  for (const auto& [change, error] : cases) {
    SmallHead file = small_eagle1();
    change(file);
    try {
      read(file);
      ADD_FAILURE() << "expected: " << error;
    } catch (const Error& found) {
      EXPECT_EQ(std::string(found.what()), error);
    }
  }
}

}  // namespace
}  // namespace outrider

// Heads that guess blocks are read as their producers mean them, or refused in one line.

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "base/error.h"
#include "model/head.h"
#include "model/small_head_test.h"

namespace outrider {
namespace {

using nlohmann::json;

constexpr int kBlock = 4;
constexpr Token kMask = 15;

const Model& target() {
  static const Model model = small_target(8);
  return model;
}

Head read(const SmallHead& head) {
  return head.read(target());
}

// As z-lab writes it, for this many layers of the target.
SmallHead small_block(int n_layers = 2, int n_taps = 2) {
  SmallHead head;
  head.add("fc.weight", {n_taps * kSmallWidth, kSmallWidth});
  head.add("hidden_norm.weight", {kSmallWidth});
  head.add("norm.weight", {kSmallWidth});
  for (int i = 0; i < n_layers; ++i) {
    const std::string layer = fmt::format("layers.{}.", i);
    add_decoder_layer(head, layer);
    head.add(layer + "self_attn.q_norm.weight", {kSmallHeadDim});
    head.add(layer + "self_attn.k_norm.weight", {kSmallHeadDim});
  }
  head.config.update({{"num_hidden_layers", n_layers},
                      {"block_size", kBlock},
                      {"dflash_config", {{"mask_token_id", kMask}}}});
  return head;
}

void add_markov(SmallHead& head, std::int64_t rank) {
  head.add("markov_head.markov_w1.weight", {rank, kSmallVocabulary});
  head.add("markov_head.markov_w2.weight", {rank, kSmallVocabulary});
}

TEST(BlockHead, Layers) {
  SmallHead file = small_block();
  EXPECT_EQ(drafter_of_head(*file.checkpoint()), "dflash");
  const Head head = read(file);
  EXPECT_EQ(head.kind, "DFlash");
  EXPECT_EQ(head.producer, "z-lab");
  const ModelSpec& spec = head.model.spec;
  // One for each layer, from the second to the fourth from the end.
  const BlockInput expected{
      .taps = {1, 5}, .tap_width = kSmallWidth, .n_rows = kBlock, .mask = kMask};
  EXPECT_EQ(*spec.block, expected);
  ASSERT_EQ(spec.n_layers(), 2);
  for (const LayerSpec& layer : spec.layers) {
    EXPECT_EQ(layer.operations[0].pre_norm, Role::attention_norm);
    const Attention& attention = std::get<Attention>(layer.operations[0].body);
    EXPECT_EQ(attention.first_key, 0);
    EXPECT_TRUE(attention.sees_block);
    EXPECT_FALSE(attention.window);
    EXPECT_EQ(attention.qk_norm, HeadNorm::shared);
  }
  EXPECT_EQ(head.model.weight(Role::feature_norm)->name, "hidden_norm.weight");
  EXPECT_EQ(head.model.weight(Role::output)->name, "output.weight");
  EXPECT_EQ(head.model.weight(Role::token_embedding)->name, "token_embd.weight");
}

TEST(BlockHead, Taps) {
  struct Case {
    const char* name;
    int n_layers, n_taps;
    std::function<void(json&)> change;
    std::vector<int> taps;
  };
  const Case cases[] = {
      {"z-lab's, one layer", 1, 1, [](json&) {}, {4}},
      {"z-lab's, three layers", 3, 3, [](json&) {}, {1, 3, 5}},
      {"z-lab: outputs",
       2,
       3,
       [](json& config) {
         config["dflash_config"]["target_layer_ids"] = {0, 3, 6};
       },
       {0, 3, 6}},
      {"z-lab: beside its object",
       2,
       2,
       [](json& config) {
         config["target_layer_ids"] = {0, 3};
       },
       {0, 3}},
      {"z-lab: the last layer's output is normed",
       2,
       2,
       [](json& config) {
         config["dflash_config"]["target_layer_ids"] = {0, 7};
       },
       {0, 8}},
      {"DeepSpec: outputs, and the embedding",
       2,
       2,
       [](json& config) {
         config.erase("dflash_config");
         config["mask_token_id"] = kMask;
         config["target_layer_ids"] = {-1, 6};
       },
       {-1, 6}},
      {"DeepSpec: the last layer's output is normed",
       2,
       2,
       [](json& config) {
         config.erase("dflash_config");
         config["mask_token_id"] = kMask;
         config["target_layer_ids"] = {-1, 7};
       },
       {-1, 8}},
      {"speculators: inputs",
       2,
       2,
       [](json& config) {
         config = {{"speculators_model_type", "dflash"},
                   {"block_size", kBlock},
                   {"mask_token_id", kMask},
                   {"aux_hidden_state_layer_ids", {1, 5}},
                   {"transformer_layer_config", config}};
       },
       {0, 4}},
      {"speculators: the last layer's output is not normed",
       2,
       2,
       [](json& config) {
         config["speculators_model_type"] = "dflash";
         config["aux_hidden_state_layer_ids"] = {0, 8};
       },
       {-1, 7}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    SmallHead file = small_block(c.n_layers, c.n_taps);
    c.change(file.config);
    EXPECT_EQ(read(file).model.spec.block->taps, c.taps);
  }
}

// Whether a block's first row guesses, by key or by producer.
TEST(BlockHead, Anchor) {
  struct Case {
    json more;
    bool anchor_guesses;
    std::string producer;
  };
  const json own = {{"mask_token_id", kMask}};
  const Case cases[] = {
      {{}, false, "z-lab"},
      {{{"sample_from_anchor", true}}, true, "z-lab"},
      {{{"dflash_config", {{"mask_token_id", kMask}, {"projector_type", "dspark"}}}},
       true,
       "SpecForge"},
      {{{"projector_type", "dspark"}}, true, "SpecForge"},
      {{{"speculators_model_type", "dflash"}, {"mask_token_id", kMask}}, false, "speculators"},
      {{{"speculators_model_type", "dspark"}, {"mask_token_id", kMask}}, true, "speculators"},
      {{{"speculators_model_type", "dspark"},
        {"mask_token_id", kMask},
        {"sample_from_anchor", false}},
       false,
       "speculators"},
      {{{"dflash_config", nullptr}, {"mask_token_id", kMask}}, true, "DeepSpec"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.more.dump());
    SmallHead file = small_block();
    if (c.more.is_object()) file.config.update(c.more);
    if (file.config["dflash_config"].is_null()) file.config.erase("dflash_config");
    const Head head = read(file);
    EXPECT_EQ(head.model.spec.block->anchor_guesses, c.anchor_guesses);
    EXPECT_EQ(head.producer, c.producer);
    EXPECT_EQ(head.model.spec.block->windows_end_at_anchor, c.producer == "speculators");
  }
}

TEST(BlockHead, Windows) {
  SmallHead file = small_block();
  file.config["layer_types"] = {"sliding_attention", "full_attention"};
  file.config["sliding_window"] = 3;
  for (const bool non_causal : {false, true}) {
    file.config["sliding_window_non_causal"] = non_causal;
    const Head head = read(file);
    const Attention& first = *attention_of(head.model.spec.layers[0]);
    const Attention& second = *attention_of(head.model.spec.layers[1]);
    EXPECT_EQ(first.window, 3);
    EXPECT_EQ(first.sees_block, non_causal);
    EXPECT_FALSE(second.window);
    EXPECT_TRUE(second.sees_block);
  }
}

TEST(BlockHead, WindowsByOtherKeys) {
  SmallHead file = small_block();
  file.config["dflash_config"]["use_swa"] = true;
  file.config["dflash_config"]["swa_window_size"] = 5;
  Head head = read(file);
  for (const LayerSpec& layer : head.model.spec.layers) {
    EXPECT_EQ(attention_of(layer)->window, 5);
    EXPECT_FALSE(attention_of(layer)->sees_block);
  }
  for (const bool causal : {false, true}) {
    file.config["is_causal"] = causal;
    head = read(file);
    EXPECT_EQ(attention_of(head.model.spec.layers[1])->sees_block, !causal);
  }
}

SmallHead small_deepspec_block() {
  SmallHead head = small_block();
  head.config.erase("dflash_config");
  head.config["mask_token_id"] = kMask;
  return head;
}

// As llama.cpp writes it.
SmallHead small_gguf_block() {
  SmallHead head = small_block();
  const std::pair<std::string, std::string> names[] = {
      {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
      {"input_layernorm", "attn_norm"},    {"post_attention_layernorm", "ffn_norm"},
      {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"},       {"layers.", "blk."},
      {"hidden_norm", "enc.output_norm"}};
  std::map<std::string, SmallHead::Tensor> renamed;
  for (auto& [name, tensor] : head.tensors) {
    std::string found = name == "norm.weight" ? "output_norm.weight" : name;
    for (const auto& [own, gguf] : names)
      if (const std::size_t at = found.find(own); at != found.npos)
        found.replace(at, own.size(), gguf);
    renamed[found] = std::move(tensor);
  }
  head.tensors = std::move(renamed);
  head.origin = "dir/head.gguf";
  head.config = nullptr;
  head.metadata = {{"general.architecture", "dflash"},
                   {"tokenizer.ggml.mask_token_id", std::int64_t{kMask}},
                   {"dflash.block_count", std::int64_t{2}},
                   {"dflash.embedding_length", kSmallWidth},
                   {"dflash.feed_forward_length", kSmallFfn},
                   {"dflash.attention.head_count", kSmallHeads},
                   {"dflash.attention.head_count_kv", kSmallKvHeads},
                   {"dflash.block_size", std::int64_t{kBlock}},
                   {"dflash.target_layers", std::vector<std::int64_t>{2, 5}}};
  return head;
}

TEST(BlockHead, Gguf) {
  SmallHead file = small_gguf_block();
  EXPECT_EQ(drafter_of_head(*file.checkpoint()), "dflash");
  Head head = read(file);
  EXPECT_EQ(head.producer, "llama.cpp");
  EXPECT_EQ(head.model.spec.block->taps, (std::vector{1, 4}));  // what enters a layer
  EXPECT_FALSE(head.model.spec.block->anchor_guesses);
  EXPECT_EQ(attention_of(head.model.spec.layers[0])->rope->pairing, RopePairing::halves);
  file.metadata["dflash.attention.sliding_window"] = std::int64_t{3};
  file.metadata["dflash.attention.sliding_window_pattern"] = std::vector<bool>{false, true};
  head = read(file);
  EXPECT_FALSE(attention_of(head.model.spec.layers[0])->window);
  EXPECT_EQ(attention_of(head.model.spec.layers[1])->window, 3);
  EXPECT_TRUE(attention_of(head.model.spec.layers[1])->sees_block);
  for (const bool causal : {false, true}) {
    file.metadata["dflash.attention.causal"] = causal;
    head = read(file);
    for (const LayerSpec& layer : head.model.spec.layers)
      EXPECT_EQ(attention_of(layer)->sees_block, !causal);
  }
  file.metadata["dflash.target_layers"] = std::vector<std::int64_t>{0, 8};
  EXPECT_EQ(read(file).model.spec.block->taps, (std::vector{-1, 8}));  // the last norm

  file.add("markov_w1.weight", {4, kSmallVocabulary});
  file.add("markov_w2.weight", {4, kSmallVocabulary});
  EXPECT_EQ(drafter_of_head(*file.checkpoint()), "dspark");
  EXPECT_TRUE(read(file).model.spec.block->anchor_guesses);
}

TEST(BlockHead, GgufRefused) {
  struct Case {
    std::function<void(SmallHead&)> change;
    std::string error;
  };
  const Case cases[] = {
      {[](SmallHead& head) { head.tensors.erase("fc.weight"); },
       "tensor fc.weight is missing; the head is incomplete"},
      {[](SmallHead& head) { head.metadata.erase("tokenizer.ggml.mask_token_id"); },
       "tokenizer.ggml.mask_token_id is missing"},
      {[](SmallHead& head) { head.metadata["dflash.rope.dimension_count"] = std::int64_t{2}; },
       "dflash.rope.dimension_count is 2, but heads have 4 channels, which is not supported in "
       "this "
       "version"},
      {[](SmallHead& head) { head.metadata["dflash.logit_scale"] = 0.5; },
       "dflash.logit_scale is 0.5, which is not supported in this version; expected 1"},
      {[](SmallHead& head) {
         head.metadata["dflash.attention.sliding_window_pattern"] = std::vector<bool>{true};
       },
       "dflash.attention.sliding_window_pattern lists 1 layers, but dflash.block_count is 2"},
      {[](SmallHead& head) {
         head.metadata["dflash.target_layers"] = std::vector<std::int64_t>{2, 9};
       },
       "dflash.target_layers lists 9, but target.gguf has 8 layers; the head is for another model"},
      {[](SmallHead& head) {
         head.metadata.erase("dflash.target_layers");
         head.add("fc.weight", {3 * kSmallWidth, kSmallWidth});
       },
       "dflash.target_layers is missing, so it is not known which 3 layers of the target fc.weight "
       "reads"},
      {[](SmallHead& head) { head.metadata["dflash.has_confidence_head"] = true; },
       "dflash.has_confidence_head is true, but there is no tensor conf_proj.weight; the head is "
       "incomplete, or its config.json is another head's"},
      {[](SmallHead& head) { head.metadata["dflash.hidden_activation"] = std::string("gelu"); },
       "dflash.hidden_activation is \"gelu\", which is not supported in this version; expected "
       "\"silu\""},
  };
  for (const auto& [change, error] : cases) {
    SmallHead head = small_gguf_block();
    change(head);
    try {
      read(head);
      ADD_FAILURE() << "expected: " << error;
    } catch (const Error& found) {
      EXPECT_EQ(std::string(found.what()), "dir/head.gguf: " + error);
    }
  }
}

TEST(BlockHead, MarkovHead) {
  SmallHead file = small_block();
  add_markov(file, 4);
  EXPECT_EQ(drafter_of_head(*file.checkpoint()), "dspark");
  Head head = read(file);
  EXPECT_EQ(head.kind, "DSpark");
  EXPECT_EQ(head.model.spec.block->successor_rank, 4);
  EXPECT_FALSE(head.model.spec.block->has_confidence);
  EXPECT_EQ(head.model.weight(Role::successor_gate), nullptr);

  file.add("markov_head.gate_proj.weight", {kSmallWidth + 4, 4});
  file.add("markov_head.gate_proj.bias", {4});
  file.add("confidence_head.proj.weight", {kSmallWidth, 1});
  file.add("confidence_head.proj.bias", {1});
  head = read(file);
  EXPECT_TRUE(head.model.spec.block->has_confidence);
  EXPECT_NE(head.model.weight(Role::successor_gate), nullptr);
  EXPECT_NE(head.model.weight(Role::successor_gate_bias), nullptr);
  file.add("confidence_head.proj.weight", {kSmallWidth + 4, 1});
  EXPECT_EQ(read(file).model.weight(Role::confidence)->columns(), kSmallWidth + 4);
}

// As early files of SpecForge have them.
TEST(BlockHead, MarkovHeadOneLevelDeeper) {
  SmallHead file = small_block();
  file.add("logit_head.markov_head.markov_w1.weight", {2, kSmallVocabulary});
  file.add("logit_head.markov_head.markov_w2.weight", {2, kSmallVocabulary});
  file.add("logit_head.markov_head.joint_proj.weight", {2 * 2 + kSmallWidth, 3 * 2});
  file.add("logit_head.markov_head.joint_proj.bias", {3 * 2});
  file.add("logit_head.confidence_head.proj.weight", {kSmallWidth + 2, 1});
  file.add("logit_head.confidence_head.proj.bias", {1});
  EXPECT_EQ(drafter_of_head(*file.checkpoint()), "dspark");
  const Head head = read(file);
  EXPECT_EQ(head.model.spec.block->successor_rank, 2);
  EXPECT_TRUE(head.model.spec.block->successors_remember);
  EXPECT_TRUE(head.model.spec.block->has_confidence);
}

TEST(BlockHead, ConfidenceWithoutAMarkovHead) {
  SmallHead file = small_deepspec_block();
  file.config.update({{"markov_rank", 0}, {"enable_confidence_head", true}});
  file.add("confidence_head.proj.weight", {kSmallWidth, 1});
  file.add("confidence_head.proj.bias", {1});
  EXPECT_EQ(drafter_of_head(*file.checkpoint()), "dflash");
  const Head head = read(file);
  EXPECT_EQ(head.model.spec.block->successor_rank, 0);
  EXPECT_TRUE(head.model.spec.block->has_confidence);
}

TEST(BlockHead, EmbeddingScale) {
  Model scaled = target();
  scaled.spec.embedding_scale = 3;
  const auto scale = [&](const SmallHead& file) {
    return file.read(scaled).model.spec.embedding_scale;
  };
  SmallHead zlab = small_block();
  EXPECT_EQ(scale(zlab), 1);
  zlab.config["input_embedding_scale"] = 1;
  EXPECT_EQ(scale(zlab), 1);
  zlab.config["dflash_config"]["input_embedding_scale"] = 2.5;
  EXPECT_EQ(scale(zlab), 2.5f);

  SmallHead specforge = small_block();
  specforge.config["dflash_config"]["projector_type"] = "dspark";
  EXPECT_EQ(scale(specforge), 1);

  SmallHead speculators = small_deepspec_block();
  speculators.config["speculators_model_type"] = "dflash";
  EXPECT_EQ(scale(speculators), 1);

  SmallHead deepspec = small_deepspec_block();
  EXPECT_EQ(scale(deepspec), 1);
  deepspec.add("embed_tokens.weight", {kSmallWidth, kSmallVocabulary});
  EXPECT_EQ(scale(deepspec), 3);

  SmallHead gguf = small_gguf_block();
  EXPECT_EQ(scale(gguf), 1);
  gguf.metadata["dflash.embedding_scale"] = 0.5;
  EXPECT_EQ(scale(gguf), 0.5f);
}

TEST(BlockHead, RopeOfNeighbours) {
  SmallHead file = small_block();
  for (const bool has_halves : {true, false}) {
    file.config["rope_is_neox_style"] = has_halves;
    const Head head = read(file);
    EXPECT_EQ(attention_of(head.model.spec.layers[1])->rope->pairing,
              has_halves ? RopePairing::halves : RopePairing::adjacent);
  }
}

TEST(BlockHead, RowsWhereNoKeySaysHowMany) {
  SmallHead file = small_block();
  file.config.erase("block_size");
  EXPECT_EQ(read(file).model.spec.block->n_rows, 16);
  file.config["speculators_model_type"] = "dflash";
  file.config["mask_token_id"] = kMask;
  EXPECT_EQ(read(file).model.spec.block->n_rows, 8);
}

TEST(BlockHead, MarkovHeadWithAMemory) {
  SmallHead file = small_block();
  add_markov(file, 2);
  file.add("markov_head.joint_proj.weight", {2 * 2 + kSmallWidth, 3 * 2});
  file.add("markov_head.joint_proj.bias", {3 * 2});
  const Head head = read(file);
  EXPECT_TRUE(head.model.spec.block->successors_remember);
  EXPECT_EQ(head.model.weight(Role::successor_gate)->name, "markov_head.joint_proj.weight");
  EXPECT_EQ(head.model.weight(Role::successor_gate_bias)->name, "markov_head.joint_proj.bias");
}

TEST(BlockHead, OutputTokens) {
  SmallHead file = small_block();
  file.add("lm_head.weight", {kSmallWidth, kSmallRows});
  file.set_d2t({0, 1, 2, 4, 11});
  file.config["draft_vocab_size"] = kSmallRows;
  EXPECT_EQ(read(file).output_tokens, (std::vector<Token>{0, 2, 4, 7, 15}));
}

TEST(BlockHead, Refused) {
  struct Case {
    std::function<void(SmallHead&)> change;
    std::string error;
  };
  const std::string config = "dir/config.json: ", file = "dir/head.safetensors: ";
  const Case cases[] = {
      {[](SmallHead& head) { head.config = nullptr; },
       file + "there is no config.json beside the head, which says how it is built"},
      {[](SmallHead& head) { head.config["block_size"] = 1; },
       config + "block_size is 1, expected an integer from 2 to 64"},
      {[](SmallHead& head) { head.config["dflash_config"]["mask_token_id"] = 16; },
       config + "dflash_config.mask_token_id is 16, expected an integer from 0 to 15"},
      {[](SmallHead& head) {
         head.config["dflash_config"]["target_layer_ids"] = {1, 9};
       },
       config + "dflash_config.target_layer_ids lists 9, but target.gguf has 8 layers; the head is "
                "for another model"},
      {[](SmallHead& head) {
         head.config["target_layer_ids"] = {1, 8};
       },
       config + "target_layer_ids lists 8, but target.gguf has 8 layers; the head is for another "
                "model"},
      {[](SmallHead& head) {
         head.add("fc.weight", {3 * kSmallWidth, kSmallWidth});
       },
       config + "dflash_config.target_layer_ids is missing, so it is not known which 3 layers of "
                "the target fc.weight reads"},
      {[](SmallHead& head) { head.config["dflash_config"]["target_layer_ids"] = {1}; },
       config + "dflash_config.target_layer_ids lists 1 layers, but fc.weight reads 2; the head is "
                "for another model, or its config.json is another head's"},
      {[](SmallHead& head) { head.config["layer_types"] = {"full_attention"}; },
       config + "layer_types lists 1 layers, but num_hidden_layers is 2"},
      {[](SmallHead& head) {
         head.config["layer_types"] = {"full_attention", "linear_attention"};
       },
       config + "layer_types names \"linear_attention\", which is not supported in this version; "
                "expected full_attention or sliding_attention"},
      {[](SmallHead& head) {
         head.config["layer_types"] = {"full_attention", 1};
       },
       config + "layer_types is [\\x22full_attention\\x22,1], expected a list of strings"},
      {[](SmallHead& head) { head.config["hidden_size"] = 16; },
       config + "hidden_size is 16, but the width of target.gguf, whose embedding and output it "
                "needs, is 8; the head is for another model"},
      {[](SmallHead& head) {
         head.add("fc.weight", {12, kSmallWidth});
       },
       file + "fc.weight reads 12 numbers, no multiple of the width 8 of target.gguf; the head is "
              "for another model"},
      {[](SmallHead& head) {
         add_markov(head, 3);
         head.add("markov_head.joint_proj.weight", {14, 9});
       },
       file + "tensor markov_head.markov_w1.weight has a rank of 3, which with "
              "markov_head.joint_proj.weight is expected to be at most 2"},
      {[](SmallHead& head) {
         add_markov(head, 2);
         head.add("markov_head.joint_proj.weight", {12, 4});
       },
       file + "tensor markov_head.joint_proj.weight is [12, 4], expected [12, 6]; the head is for "
              "another model, or its config.json is another head's"},
      {[](SmallHead& head) { head.config["markov_rank"] = 256; },
       config + "markov_rank is 256, but there is no tensor markov_head.markov_w1.weight; the head "
                "is incomplete, or its config.json is another head's"},
      {[](SmallHead& head) {
         add_markov(head, 4);
         head.config["dflash_config"]["markov_rank"] = 8;
       },
       config +
           "dflash_config.markov_rank is 8, but that of tensor markov_head.markov_w1.weight is "
           "4; the head is incomplete, or its config.json is another head's"},
      {[](SmallHead& head) {
         add_markov(head, 4);
         head.config["markov_head_type"] = "gated";
       },
       config +
           "markov_head_type is \"gated\", but the tensors are those of \"vanilla\"; the head is "
           "incomplete, or its config.json is another head's"},
      {[](SmallHead& head) {
         add_markov(head, 4);
         head.config["enable_confidence_head"] = true;
       },
       config +
           "enable_confidence_head is true, but there is no tensor "
           "confidence_head.proj.weight; the head is incomplete, or its config.json is another "
           "head's"},
      {[](SmallHead& head) { add_markov(head, 9); },
       file + "tensor markov_head.markov_w1.weight has a rank of 9, expected 1 to 8"},
      {[](SmallHead& head) {
         add_markov(head, 4);
         head.tensors.erase("markov_head.markov_w2.weight");
       },
       file +
           "tensor markov_head.markov_w2.weight is missing; the head is incomplete, or of a kind "
           "that this version does not support"},
      {[](SmallHead& head) { head.add("gru.weight", {8}); },
       file + "tensor gru.weight has no place in a head that guesses blocks; this variant is not "
              "supported in this version"},
  };
  for (const auto& [change, error] : cases) {
    SmallHead head = small_block();
    change(head);
    try {
      read(head);
      ADD_FAILURE() << "expected: " << error;
    } catch (const Error& found) {
      EXPECT_EQ(std::string(found.what()), error);
    }
  }
}

}  // namespace
}  // namespace outrider

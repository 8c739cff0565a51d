// A file is a model whose shapes agree, or an Error that says where they do not.

#include "model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "base/error.h"
#include "cache/cache.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "numerics/rope.h"

namespace outrider {
namespace {

struct Part {
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;
  float value = 0;  // of all elements, where they are F32
};

// A model file that a test may change before it is written.
struct File {
  std::map<std::string, MetadataValue> metadata;
  std::map<std::string, Part> tensors;

  std::shared_ptr<const Checkpoint> checkpoint() const {
    GgufWriter writer;
    for (const auto& [key, value] : metadata) writer.add(key, value);
    for (const auto& [name, part] : tensors) {
      std::size_t elements = 1;
      for (const std::int64_t extent : part.shape) elements *= static_cast<std::size_t>(extent);
      const TensorTypeTraits& of = traits(part.type);
      std::vector<std::byte> bytes(elements / of.block_elements * of.block_bytes);
      for (std::size_t i = 0; part.type == TensorType::f32 && i < elements; ++i)
        std::memcpy(&bytes[i * sizeof(float)], &part.value, sizeof(float));
      writer.add_tensor(name, part.type, part.shape, bytes);
    }
    struct Owner {
      std::vector<std::byte> bytes;
      Checkpoint checkpoint;
    };
    auto owner = std::make_shared<Owner>();
    owner->bytes = writer.bytes();
    owner->checkpoint = read_gguf(owner->bytes, "test.gguf");
    return {owner, &owner->checkpoint};
  }
};

constexpr std::int64_t kEmbedding = 24, kHeads = 4, kKvHeads = 2, kHeadDim = 6, kWidth = 10,
                       kVocabulary = 5;

constexpr const char* kFamilies[] = {"chatglm", "cohere2", "command-r", "gemma2",   "gemma3",
                                     "glm4",    "granite", "llama",     "mistral3", "olmo2",
                                     "phi3",    "qwen2",   "qwen3",     "smollm3",  "starcoder2"};

bool is_one_of(std::string_view family, std::initializer_list<std::string_view> families) {
  return std::ranges::find(families, family) != families.end();
}
bool has_layer_norm(std::string_view family) {
  return is_one_of(family, {"cohere2", "command-r", "starcoder2"});
}
bool has_window(std::string_view family) {
  return is_one_of(family, {"cohere2", "gemma2", "gemma3"});
}

// One layer of a family, with the keys and tensors that are not optional.
File small_file(const std::string& family) {
  File file;
  const auto set = [&](const char* name, MetadataValue value) {
    file.metadata[family + "." + name] = std::move(value);
  };
  file.metadata["general.architecture"] = family;
  set("block_count", std::int64_t{1});
  set("context_length", std::int64_t{128});
  set("embedding_length", kEmbedding);
  set("feed_forward_length", kWidth);
  set("attention.head_count", kHeads);
  set("attention.head_count_kv", kKvHeads);
  set(has_layer_norm(family) ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
      1e-5);
  if (has_window(family)) set("attention.sliding_window", std::int64_t{16});
  if (is_one_of(family, {"cohere2", "command-r", "granite"})) set("logit_scale", 1.0);

  const auto tensor = [&](const char* name, std::vector<std::int64_t> shape) {
    file.tensors[name].shape = std::move(shape);
  };
  tensor("token_embd.weight", {kEmbedding, kVocabulary});
  tensor("output_norm.weight", {kEmbedding});
  tensor("blk.0.attn_q.weight", {kEmbedding, kHeads * kHeadDim});
  tensor("blk.0.attn_k.weight", {kEmbedding, kKvHeads * kHeadDim});
  tensor("blk.0.attn_v.weight", {kEmbedding, kKvHeads * kHeadDim});
  tensor("blk.0.attn_output.weight", {kHeads * kHeadDim, kEmbedding});
  tensor("blk.0.ffn_up.weight", {kEmbedding, kWidth});
  tensor("blk.0.ffn_down.weight", {kWidth, kEmbedding});
  if (family != "starcoder2") tensor("blk.0.ffn_gate.weight", {kEmbedding, kWidth});
  if (family != "olmo2") tensor("blk.0.attn_norm.weight", {kEmbedding});
  if (!is_one_of(family, {"olmo2", "cohere2", "command-r"}))
    tensor("blk.0.ffn_norm.weight", {kEmbedding});
  if (is_one_of(family, {"gemma2", "gemma3", "glm4", "olmo2"})) {
    tensor("blk.0.post_attention_norm.weight", {kEmbedding});
    tensor("blk.0.post_ffw_norm.weight", {kEmbedding});
  }
  if (family == "qwen2") {
    tensor("blk.0.attn_q.bias", {kHeads * kHeadDim});
    tensor("blk.0.attn_k.bias", {kKvHeads * kHeadDim});
    tensor("blk.0.attn_v.bias", {kKvHeads * kHeadDim});
  }
  if (is_one_of(family, {"gemma3", "qwen3"})) {
    tensor("blk.0.attn_q_norm.weight", {kHeadDim});
    tensor("blk.0.attn_k_norm.weight", {kHeadDim});
  }
  if (family == "olmo2") {
    tensor("blk.0.attn_q_norm.weight", {kHeads * kHeadDim});
    tensor("blk.0.attn_k_norm.weight", {kKvHeads * kHeadDim});
  }
  return file;
}

std::string problem_of(const File& file) {
  try {
    interpret_checkpoint(file.checkpoint());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The error of a changed file is one line that begins with the file's name, holds `found` and says
// what to do.
void expect_problem(const File& file, const std::string& found) {
  const std::string problem = problem_of(file);
  EXPECT_NE(problem.find("; "), problem.npos) << problem;
  EXPECT_TRUE(problem.starts_with("test.gguf: ")) << problem;
  EXPECT_NE(problem.find(found), problem.npos) << problem;
  for (const char c : problem) EXPECT_GE(static_cast<unsigned char>(c), ' ') << problem;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> words(std::size_t n) {
  return std::vector<std::string>(n, "word");
}

TEST(Understand, ReadsASmallModelOfEveryFamily) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const Model model = interpret_checkpoint(small_file(family).checkpoint());
    EXPECT_EQ(model.spec.family, family);
    EXPECT_EQ(model.spec.n_layers(), 1);
    EXPECT_EQ(model.spec.vocabulary, kVocabulary);
    EXPECT_EQ(model.spec.context_trained, 128);
    const auto& attention = std::get<Attention>(model.spec.layers[0].operations[0].body);
    EXPECT_EQ(attention.n_heads, kHeads);
    EXPECT_EQ(attention.n_kv_heads, kKvHeads);
    EXPECT_EQ(attention.key_dim, kHeadDim);
    EXPECT_EQ(attention.value_dim, kHeadDim);
    EXPECT_EQ(attention.rope->dims(), kHeadDim);
    EXPECT_EQ(attention.has_bias, std::string(family) == "qwen2");
    EXPECT_EQ(attention.qk_norm == HeadNorm::shared, is_one_of(family, {"gemma3", "qwen3"}));
    EXPECT_EQ(attention.qk_norm == HeadNorm::all, std::string(family) == "olmo2");
    EXPECT_EQ(model.weight(Role::attention_k)->name, "blk.0.attn_k.weight");
    EXPECT_EQ(model.weight(Role::output), nullptr);
  }
}

// The same with more layers, all like the first.
File with_layers(File file, const std::string& family, int n_layers) {
  const std::string first = "blk.0.";
  const std::map<std::string, Part> of_one = file.tensors;
  for (const auto& [name, part] : of_one) {
    if (!name.starts_with(first)) continue;
    for (int layer = 1; layer < n_layers; ++layer)
      file.tensors[fmt::format("blk.{}.{}", layer, name.substr(first.size()))] = part;
  }
  file.metadata[family + ".block_count"] = std::int64_t{n_layers};
  return file;
}

TEST(Understand, EveryFamilyComputesItsOwn) {
  struct Case {
    const char* family;
    RopePairing pairing;
    Activation activation;
    float embedding_scale;
    bool has_post_norms;
  };
  const Case cases[] = {
      {"llama", RopePairing::adjacent, Activation::silu, 1, false},
      {"qwen2", RopePairing::halves, Activation::silu, 1, false},
      {"gemma3", RopePairing::halves, Activation::gelu_tanh,
       std::sqrt(static_cast<float>(kEmbedding)), true},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.family);
    const ModelSpec spec =
        interpret_checkpoint(with_layers(small_file(c.family), c.family, 2).checkpoint()).spec;
    EXPECT_EQ(spec.embedding_scale, c.embedding_scale);
    EXPECT_EQ(spec.norm_eps, 1e-5f);
    EXPECT_EQ(spec.logit_softcap, std::nullopt);
    for (const LayerSpec& layer : spec.layers) {
      ASSERT_EQ(layer.operations.size(), 2u);
      EXPECT_EQ(layer.operations[0].pre_norm, Role::attention_norm);
      EXPECT_EQ(layer.operations[1].pre_norm, Role::mlp_norm);
      EXPECT_EQ(layer.operations[0].post_norm.has_value(), c.has_post_norms);
      EXPECT_EQ(layer.operations[1].post_norm.has_value(), c.has_post_norms);
      const auto& attention = std::get<Attention>(layer.operations[0].body);
      EXPECT_EQ(attention.rope->pairing, c.pairing);
      EXPECT_EQ(attention.rope->frequencies, rope_frequencies(kHeadDim, 10000));
      EXPECT_EQ(attention.scale, 1 / std::sqrt(static_cast<double>(kHeadDim)));
      EXPECT_EQ(attention.softcap, std::nullopt);
      const auto& mlp = std::get<Mlp>(layer.operations[1].body);
      EXPECT_EQ(mlp.activation, c.activation);
      EXPECT_EQ(mlp.width, kWidth);
    }
  }
}

// Five layers with a window for each that sees everything, with a rope of their own.
TEST(Understand, Gemma3AlternatesWindows) {
  File file = with_layers(small_file("gemma3"), "gemma3", 13);
  file.metadata["gemma3.rope.freq_base"] = 1e6;
  file.metadata["gemma3.rope.scaling.type"] = std::string("linear");
  file.metadata["gemma3.rope.scaling.factor"] = 8.0;
  const ModelSpec spec = interpret_checkpoint(file.checkpoint()).spec;
  for (int layer = 0; layer < spec.n_layers(); ++layer) {
    SCOPED_TRACE(layer);
    const auto& attention = std::get<Attention>(spec.layers[layer].operations[0].body);
    const bool is_global = layer == 5 || layer == 11;
    EXPECT_EQ(attention.window, is_global ? std::nullopt : std::optional(16));
    std::vector<double> frequencies = rope_frequencies(kHeadDim, is_global ? 1e6 : 1e4);
    for (double& frequency : frequencies) frequency /= is_global ? 8 : 1;
    EXPECT_EQ(attention.rope->frequencies, frequencies);
  }
}

// The same, whose first layer has heads of these lengths.
struct Lengths {
  std::int64_t key_dim, value_dim;
};
File with_lengths(File file, const std::string& family, const Lengths& lengths) {
  const auto [key_dim, value_dim] = lengths;
  file.metadata[family + ".attention.key_length"] = key_dim;
  file.metadata[family + ".attention.value_length"] = value_dim;
  const auto reshape = [&](const char* name, std::vector<std::int64_t> shape) {
    const auto found = file.tensors.find(name);
    if (found != file.tensors.end()) found->second.shape = std::move(shape);
  };
  reshape("blk.0.attn_q.weight", {kEmbedding, kHeads * key_dim});
  reshape("blk.0.attn_k.weight", {kEmbedding, kKvHeads * key_dim});
  reshape("blk.0.attn_v.weight", {kEmbedding, kKvHeads * value_dim});
  reshape("blk.0.attn_output.weight", {kHeads * value_dim, kEmbedding});
  reshape("blk.0.attn_q.bias", {kHeads * key_dim});
  reshape("blk.0.attn_k.bias", {kKvHeads * key_dim});
  reshape("blk.0.attn_v.bias", {kKvHeads * value_dim});
  reshape("blk.0.attn_q_norm.weight", {key_dim});
  reshape("blk.0.attn_k_norm.weight", {key_dim});
  return file;
}

TEST(Understand, KeysAndValuesHaveLengthsOfTheirOwn) {
  for (const char* family : {"llama", "qwen2", "qwen3", "gemma3"}) {
    for (const Lengths& lengths : {Lengths{8, 3}, Lengths{2, 7}, Lengths{10, 10}}) {
      SCOPED_TRACE(fmt::format("{}: {}, {}", family, lengths.key_dim, lengths.value_dim));
      const File file = with_lengths(small_file(family), family, lengths);
      const ModelSpec spec = interpret_checkpoint(file.checkpoint()).spec;
      const Attention& attention = *attention_of(spec.layers[0]);
      EXPECT_EQ(attention.key_dim, lengths.key_dim);
      EXPECT_EQ(attention.value_dim, lengths.value_dim);
      EXPECT_EQ(attention.rope->dims(), lengths.key_dim);
      EXPECT_EQ(attention.scale, 1 / std::sqrt(static_cast<double>(lengths.key_dim)));
      // A tensor as if the lengths were exchanged.
      for (const auto& [name, part] :
           with_lengths(small_file(family), family, {lengths.value_dim, lengths.key_dim}).tensors) {
        const std::vector<std::int64_t>& expected = file.tensors.at(name).shape;
        if (part.shape == expected) continue;
        File wrong = file;
        wrong.tensors[name] = part;
        expect_problem(wrong, fmt::format("tensor {} is [{}], but the metadata asks for [{}]", name,
                                          fmt::join(part.shape, ", "), fmt::join(expected, ", ")));
      }
    }
  }
}

// A length that the file does not name is the embedding's over the heads.
TEST(Understand, OneOfTheLengthsMayBeMissing) {
  for (const Lengths& lengths : {Lengths{8, kHeadDim}, Lengths{kHeadDim, 8}}) {
    File file = with_lengths(small_file("llama"), "llama", lengths);
    file.metadata.erase(lengths.key_dim == kHeadDim ? "llama.attention.key_length"
                                                    : "llama.attention.value_length");
    const ModelSpec spec = interpret_checkpoint(file.checkpoint()).spec;
    EXPECT_EQ(attention_of(spec.layers[0])->key_dim, lengths.key_dim);
    EXPECT_EQ(attention_of(spec.layers[0])->value_dim, lengths.value_dim);
  }
}

// By the width of the embedding over the heads, of which a head's own length is not the result.
TEST(Understand, Gemma3Of27BScalesScoresItsOwnWay) {
  constexpr std::int64_t kLong = 12;
  const File file = with_lengths(small_file("gemma3"), "gemma3", {kLong, kLong});
  for (const int n_layers : {61, 62}) {
    const ModelSpec spec =
        interpret_checkpoint(with_layers(file, "gemma3", n_layers).checkpoint()).spec;
    const double divisor = n_layers == 62 ? static_cast<double>(kEmbedding) / kHeads : kLong;
    EXPECT_EQ(std::get<Attention>(spec.layers[0].operations[0].body).scale, 1 / std::sqrt(divisor));
  }
}

TEST(Understand, MissesEveryKeyThatIsNotOptional) {
  for (const char* family : kFamilies) {
    const File whole = small_file(family);
    for (const auto& [key, value] : whole.metadata) {
      // Absent: as many as heads, 4096, none.
      if (key.ends_with("head_count_kv") || key == "gemma2.attention.sliding_window" ||
          key == "gemma3.attention.sliding_window")
        continue;
      SCOPED_TRACE(key);
      File file = whole;
      file.metadata.erase(key);
      expect_problem(file, key + " is missing");
    }
  }
}

TEST(Understand, RefusesEveryKeyOfAnotherType) {
  for (const char* family : kFamilies) {
    const File whole = small_file(family);
    for (const auto& [key, value] : whole.metadata) {
      SCOPED_TRACE(key);
      File file = whole;
      for (const MetadataValue& other :
           {MetadataValue(true), MetadataValue(std::vector<std::int64_t>{1, 2}),
            MetadataValue(words(1)), MetadataValue(~std::uint64_t{0})}) {
        file.metadata[key] = other;
        expect_problem(file, key);
      }
    }
  }
}

TEST(Understand, MissesEveryTensor) {
  for (const char* family : kFamilies) {
    const File whole = small_file(family);
    for (const auto& [name, part] : whole.tensors) {
      SCOPED_TRACE(name);
      File file = whole;
      file.tensors.erase(name);
      expect_problem(file, "tensor " + name + " is missing");
    }
  }
}

TEST(Understand, RefusesEveryTensorOfAnotherShape) {
  for (const char* family : kFamilies) {
    const File whole = small_file(family);
    for (const auto& tensor : whole.tensors) {
      const std::string& name = tensor.first;
      if (name == "token_embd.weight") continue;  // its rows say how large the vocabulary is
      SCOPED_TRACE(name);
      const auto change = [&](auto alter) {
        File file = whole;
        alter(file.tensors[name].shape);
        expect_problem(file, "tensor " + name + " is [");
      };
      change([](auto& shape) { shape[0] += 2; });
      change([](auto& shape) { shape.back() -= 1; });
      change([](auto& shape) { shape.push_back(2); });
      change([](auto& shape) { shape.insert(shape.begin(), 1); });
      File file = whole;
      file.tensors[name].shape.push_back(1);  // says nothing
      EXPECT_EQ(problem_of(file), "");
    }
  }
}

TEST(Understand, RefusesTablesInThePlaceOfWeights) {
  for (const TensorType type : {TensorType::i32, TensorType::i64}) {
    const File whole = small_file("llama");
    for (const auto& [name, part] : whole.tensors) {
      File file = whole;
      file.tensors[name].type = type;
      expect_problem(file,
                     fmt::format("tensor {} is {}, expected weights", name, traits(type).name));
    }
    File file = whole;
    file.tensors["d2t"] = {type, {4}};
    expect_problem(file, "tensor d2t has no place in architecture \"llama\"");
  }
}

TEST(Understand, RefusesVectorsThatAreNoFloats) {
  for (const char* family : kFamilies) {
    const File whole = small_file(family);
    for (const auto& [name, part] : whole.tensors) {
      SCOPED_TRACE(name);
      File file = whole;
      file.tensors[name].type = TensorType::f16;
      if (part.shape.size() == 1) {
        expect_problem(file, "tensor " + name + " is F16, expected F32");
      } else {
        EXPECT_EQ(problem_of(file), "");
      }
    }
  }
}

TEST(Understand, SaysWhichNumberIsAbsurd) {
  struct Case {
    const char* key;
    MetadataValue value;
    const char* found;
  };
  const auto whole = [](std::int64_t value) { return MetadataValue(value); };
  const MetadataValue by_layer = std::vector<std::int64_t>{4, 8};
  const MetadataValue of_two_layers = std::vector<std::int64_t>{4, 4};
  constexpr const char* kEpsilon = "attention.layer_norm_rms_epsilon";
  const Case cases[] = {
      {"block_count", whole(0), "block_count is 0, expected 1 to 256"},
      {"block_count", whole(-1), "block_count is -1"},
      {"block_count", whole(kMaxLayers + 1), "block_count is 257"},
      {"block_count", whole(std::int64_t{1} << 31), "block_count is 2147483648"},
      {"block_count", whole(2), "weight is missing; the file is incomplete"},
      {"context_length", whole(0), "context_length is 0"},
      {"context_length", whole(std::int64_t{1} << 32), "context_length is 4294967296"},
      {"embedding_length", whole(0), "embedding_length is 0"},
      {"embedding_length", whole(std::int64_t{1} << 40), "embedding_length is 1099511627776"},
      {"embedding_length", whole(48), "the metadata asks for [48, 5]"},
      {"feed_forward_length", whole(0), "feed_forward_length is 0"},
      {"feed_forward_length", whole(std::int64_t{1} << 30), "feed_forward_length is 1073741824"},
      {"feed_forward_length", whole(12), "the metadata asks for [24, 12]"},
      {"attention.head_count", whole(0), "head_count is 0"},
      {"attention.head_count", whole(5), "5 heads cannot share 2"},
      {"attention.head_count", whole(4098), "head_count is 4098, expected 1 to 4096"},
      {"attention.head_count", whole(48), "48 heads 0 channels, expected 1 to 4096"},
      {"attention.head_count_kv", whole(0), "head_count_kv is 0"},
      {"attention.head_count_kv", whole(8), "4 heads cannot share 8"},
      {"attention.head_count_kv", whole(1), "the metadata asks for [24, 6]"},
      {"attention.key_length", whole(0), "key_length is 0"},
      {"attention.key_length", whole(4097), "key_length is 4097, expected 1 to 4096"},
      {"attention.key_length", whole(7), "rope turns 7 of a key's 7 channels"},
      {"attention.key_length", whole(8),
       "tensor blk.0.attn_q.weight is [24, 24], but the metadata asks for [24, 32]"},
      {"attention.value_length", whole(0), "value_length is 0"},
      {"attention.value_length", whole(4097), "value_length is 4097, expected 1 to 4096"},
      {"attention.value_length", whole(2),
       "tensor blk.0.attn_v.weight is [24, 12], but the metadata asks for [24, 4]"},
      {kEpsilon, kNan, "epsilon is nan, expected a number from 1e-30 to 1"},
      {kEpsilon, -1e-6, "epsilon is -1e-06"},
      {kEpsilon, 0.0, "epsilon is 0"},
      {kEpsilon, kInfinity, "epsilon is inf"},
      {"rope.freq_base", kNan, "freq_base is nan"},
      {"rope.freq_base", 0.0, "freq_base is 0"},
      {"rope.freq_base", kInfinity, "freq_base is inf"},
      {"rope.dimension_count", whole(5), "rope turns 5 of a key's 6 channels"},
      {"rope.dimension_count", whole(8), "rope turns 8 of a key's 6 channels"},
      {"rope.dimension_count", whole(-2), "dimension_count is -2"},
      {"rope.scaling.type", std::string("dynamic"), "rope scaling \"dynamic\""},
      {"rope.scaling.attn_factor", 0.0, "rope.scaling.attn_factor is 0"},
      {"rope.scaling.type", std::string("a\033[31m\n"), "rope scaling \"a\\x1b[31m\\x0a\""},
      {"attention.sliding_window", whole(-1), "sliding_window is -1"},
      {"attention.sliding_window", whole(std::int64_t{1} << 32), "sliding_window is 4294967296"},
      {"attention.sliding_window", std::string("all"), "sliding_window holds a string"},
      {"hidden_activation", std::string("relu2\n"), "hidden_activation is \"relu2\\x0a\", but \""},
      {"hidden_activation", whole(1), "hidden_activation holds an integer, expected a string"},
      {"attention.head_count", by_layer, "head_count holds 2 numbers, one per layer, expected one"},
      {"attention.head_count_kv", by_layer, "head_count_kv holds 2 numbers, one per layer"},
      {"feed_forward_length", by_layer, "feed_forward_length holds 2 numbers, one per layer"},
      {"attention.head_count_kv", of_two_layers,
       "head_count_kv is about 2 layers, but there are 1"},
      {"nextn_predict_layers", whole(1), "block_count is 1, expected 2 to 256"},
      {"nextn_predict_layers", whole(-1), "nextn_predict_layers is -1"},
      {"expert_count", whole(8), "is a mixture of 8 experts ("},
      {"expert_count", std::string("8"), "expert_count holds a string"},
      {"pooling_type", whole(3), "pooling_type), not of text"},
      {"attention.causal", false, "attention.causal is false), so it does not generate text"},
  };
  for (const char* family : kFamilies) {
    for (const Case& c : cases) {
      SCOPED_TRACE(fmt::format("{}.{}: {}", family, c.key, c.found));
      std::string key = c.key;
      if (key == kEpsilon && has_layer_norm(family)) key = "attention.layer_norm_epsilon";
      File file = small_file(family);
      file.metadata[fmt::format("{}.{}", family, key)] = c.value;
      expect_problem(file, c.found);
    }
  }
}

// What only some families have.
TEST(Understand, SaysWhichNumberOfAFamilyIsAbsurd) {
  struct Case {
    std::string key;
    MetadataValue value;
    std::string found;
  };
  const auto whole = [](std::int64_t value) { return MetadataValue(value); };
  std::vector<Case> cases = {
      {"gemma3.rope.freq_base_swa", kNan, "freq_base_swa is nan"},
  };
  for (const char* key : {"gemma2.attn_logit_softcapping", "gemma2.final_logit_softcapping",
                          "gemma3.final_logit_softcapping"}) {
    for (const double cap : {-1.0, 1e7, kNan, kInfinity})
      cases.push_back({key, cap, "softcapping is "});
    cases.push_back({key, true, "softcapping holds a boolean"});
  }
  for (const char* key : {"granite.embedding_scale", "granite.residual_scale",
                          "granite.logit_scale", "granite.attention.scale", "command-r.logit_scale",
                          "cohere2.logit_scale", "mistral3.attention.temperature_scale"}) {
    for (const double factor : {-0.5, 1e7, kNan, kInfinity})
      cases.push_back({key, factor, "expected a number from "});
    if (std::string_view(key).ends_with("logit_scale"))
      cases.push_back({key, 0.0, "logit_scale is 0, expected a number from 1e-06"});
    cases.push_back({key, std::string("1"), "scale holds a string, expected a float"});
  }
  for (const char* family : kFamilies) {
    if (!has_window(family)) continue;
    const std::string window = fmt::format("{}.attention.sliding_window", family);
    const std::string pattern = window + "_pattern";
    cases.push_back({pattern, std::vector<bool>{}, "pattern is about 0 layers, but there are 1"});
    cases.push_back({pattern, std::vector<bool>(2), "pattern is about 2 layers, but there are 1"});
    cases.push_back({pattern, std::vector<std::int64_t>{1}, "pattern holds an array of integers"});
    cases.push_back({pattern, whole(0), "pattern is 0, expected 1"});
    cases.push_back({pattern, whole(257), "pattern is 257"});
  }
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{}: {}", c.key, c.found));
    File file = small_file(c.key.substr(0, c.key.find('.')));
    file.metadata[c.key] = c.value;
    expect_problem(file, c.found);
  }
}

TEST(Understand, TakesTheActivationThatAFamilyHas) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const bool is_gelu = is_one_of(family, {"gemma2", "gemma3", "starcoder2"});
    for (const char* name : {"silu", "swish", "gelu_pytorch_tanh", "gelu_new", "gelu", ""}) {
      File file = small_file(family);
      file.metadata[fmt::format("{}.hidden_activation", family)] = std::string(name);
      const bool is_known = is_gelu ? is_one_of(name, {"gelu_pytorch_tanh", "gelu_new"})
                                    : is_one_of(name, {"silu", "swish"});
      if (is_known)
        EXPECT_EQ(problem_of(file), "");
      else
        expect_problem(file,
                       fmt::format("hidden_activation is \"{}\", but \"{}\" has ", name, family));
    }
  }
}

TEST(Understand, RefusesLinearScalingByAnAbsurdFactor) {
  for (const double factor : {0.5, -1.0, 1e7, kInfinity, kNan}) {
    File file = small_file("llama");
    file.metadata["llama.rope.scaling.type"] = std::string("linear");
    file.metadata["llama.rope.scaling.factor"] = factor;
    expect_problem(file, "rope.scaling.factor is ");
  }
}

// Without a key of their own, heads share the embedding.
TEST(Understand, RefusesHeadsThatAreTooWideWithoutAKeyThatSaysSo) {
  File file = small_file("llama");
  constexpr std::int64_t kWide = kHeadDimMax + 2;
  file.metadata["llama.embedding_length"] = kWide;
  file.metadata["llama.attention.head_count"] = std::int64_t{1};
  file.metadata["llama.attention.head_count_kv"] = std::int64_t{1};
  expect_problem(file, "gives each of 1 heads 4098 channels, expected 1 to 4096");
}

TEST(Understand, RefusesUnknownArchitecturesInPlainLetters) {
  File file = small_file("llama");
  file.metadata["general.architecture"] = std::string("\033]0;title\a\n\xff");
  expect_problem(file, "architecture \"\\x1b]0;title\\x07\\x0a\\xff\"");
  file.metadata["general.architecture"] = std::string(100'000, 'x');
  EXPECT_LT(problem_of(file).size(), 400u);
}

TEST(Understand, SaysWhatAnUnknownArchitectureIs) {
  const std::pair<const char*, const char*> cases[] = {
      {"mamba",
       "\"mamba\" (recurrent layers) is not supported in this version; choose a model of "},
      {"rwkv7", "(recurrent layers)"},
      {"jamba", "(recurrent layers)"},
      {"granitehybrid", "(recurrent layers)"},
      {"nemotron_h", "(recurrent layers)"},
      {"qwen3next", "(recurrent layers)"},
      {"lfm2", "(recurrent layers)"},
      {"falcon-h1", "(recurrent layers)"},
      {"bert", "(an encoder for embeddings)"},
      {"nomic-bert", "(an encoder for embeddings)"},
      {"t5encoder", "(an encoder for embeddings)"},
      {"t5", "(an encoder and a decoder)"},
      {"qwen3moe", "(a mixture of experts)"},
      {"deepseek2", "(a mixture of experts)"},
      {"llada", "(diffusion of text)"},
      {"dflash", "is a draft head (DFlash), no model; give the model that it was trained for, "},
      {"eagle3", "is a draft head (EAGLE-3), no model; give the model that it was trained for, "},
      {"stablelm", "architecture \"stablelm\" is not supported"},
  };
  for (const auto& [architecture, found] : cases) {
    SCOPED_TRACE(architecture);
    File file;
    file.metadata["general.architecture"] = std::string(architecture);
    expect_problem(file, found);
  }
}

TEST(Understand, RefusesPartsOfAModel) {
  File later;  // every part but the first holds no other keys
  later.metadata["split.no"] = std::int64_t{1};
  later.metadata["split.count"] = std::int64_t{3};
  expect_problem(
      later, "is part 2 of 3 of a model; open the first, whose name ends in -00001-of-00003.gguf");
  File first = small_file("llama");
  first.metadata["split.no"] = std::int64_t{0};
  first.metadata["split.count"] = std::int64_t{3};
  expect_problem(first, "is part 1 of 3 of a model; open the first");
  first.metadata["split.no"] = std::int64_t{3};
  expect_problem(first, "split.no is 3, expected 0 to 2");
  first.metadata["split.count"] = std::string("3");
  expect_problem(first, "split.count holds a string");
  // What llama-gguf-split --merge writes.
  first.metadata["split.no"] = first.metadata["split.count"] = std::int64_t{0};
  EXPECT_EQ(problem_of(first), "");
}

TEST(Understand, RefusesTensorsThatNothingReads) {
  for (const char* name :
       {"blk.x.attn_q.weight", "blk.", "blk.0", "blk.0.attn_q_norm.weight", "blk.-1.ffn_up.weight",
        "blk.99999999999.ffn_up.weight", "cls.output.weight", "evil\033[31m\nname"}) {
    File file = small_file("llama");
    file.tensors[name] = {TensorType::f32, {4}};
    expect_problem(file, "has no place in architecture \"llama\"");
  }
}

TEST(Understand, RefusesLayersThatTheMetadataDoesNotCount) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    File file = with_layers(small_file(family), family, 3);
    file.metadata[fmt::format("{}.block_count", family)] = std::int64_t{2};
    expect_problem(file, " is of layer 2, but " + std::string(family) +
                             ".block_count counts 2 layers of text, the first is 0");
    file.metadata[fmt::format("{}.block_count", family)] = std::int64_t{4};
    expect_problem(file, "weight is missing; the file is incomplete");
  }
}

// What a file says of its rope beyond a base: each lie has a line of its own.
TEST(Understand, SaysWhatIsWrongWithScaledRope) {
  struct Case {
    std::map<std::string, MetadataValue> metadata;
    std::map<std::string, Part> tensors;
    const char* found;
  };
  const auto f32 = TensorType::f32;
  const std::string yarn = "yarn", longrope = "longrope";
  const std::int64_t length = 64;
  const Case cases[] = {
      {{}, {{"rope_freqs.weight", {f32, {4}}}}, "rope_freqs.weight is F32 [4], expected F32 [3]"},
      {{}, {{"rope_freqs.weight", {f32, {2}, 1}}}, "rope_freqs.weight is F32 [2], expected F32"},
      {{}, {{"rope_freqs.weight", {TensorType::f16, {3}}}}, "rope_freqs.weight is F16 [3]"},
      {{}, {{"rope_freqs.weight", {f32, {3}}}}, "holds 0, expected numbers from 0.7 to 1e6"},
      {{}, {{"rope_freqs.weight", {f32, {3}, -1}}}, "rope_freqs.weight holds -1"},
      {{}, {{"rope_freqs.weight", {f32, {3}, NAN}}}, "rope_freqs.weight holds nan"},
      {{}, {{"rope_freqs.weight", {f32, {3}, INFINITY}}}, "rope_freqs.weight holds inf"},
      {{{"type", yarn}, {"factor", 0.5}}, {}, "scaling.factor is 0.5"},
      {{{"type", yarn},
        {"factor", 4.0},
        {"original_context_length", length},
        {"yarn_ext_factor", 0.0}},
       {},
       "yarn_ext_factor is 0, expected 1"},
      {{{"type", yarn}, {"factor", 4.0}, {"yarn_ext_factor", 0.5}},
       {},
       "yarn_ext_factor is 0.5, expected 1"},
      {{{"type", longrope}, {"factor", 4.0}},
       {},
       "scaling.factor is 4, expected 1 beside longrope"},
      {{{"type", yarn},
        {"factor", 4.0},
        {"original_context_length", length},
        {"yarn_beta_fast", kNan}},
       {},
       "yarn_beta_fast is nan"},
      {{{"type", yarn}, {"factor", 4.0}, {"original_context_length", std::int64_t{0}}},
       {},
       "original_context_length is 0, expected 1"},
      {{{"type", yarn},
        {"factor", 4.0},
        {"original_context_length", length},
        {"yarn_attn_factor", 0.0}},
       {},
       "yarn_attn_factor is 0"},
      {{{"type", yarn},
        {"factor", 4.0},
        {"original_context_length", length},
        {"yarn_log_multiplier", -1.0}},
       {},
       "yarn_log_multiplier is -1"},
      {{{"type", longrope}}, {{"rope_factors_long.weight", {f32, {2}}}}, "long.weight is F32 [2]"},
      {{{"type", longrope}, {"original_context_length", length}},
       {{"rope_factors_long.weight", {f32, {3}, NAN}}},
       "rope_factors_long.weight holds nan"},
      {{{"type", longrope}, {"original_context_length", length}},
       {{"rope_factors_long.weight", {f32, {3}, 1}}},
       "tensor rope_factors_short.weight is missing"},
      {{{"type", longrope}, {"original_context_length", length}},
       {{"rope_factors_short.weight", {f32, {3}, 1}}},
       "tensor rope_factors_long.weight is missing"},
      {{{"type", longrope}, {"original_context_length", length}},
       {{"rope_freqs.weight", {f32, {3}, 1}},
        {"rope_factors_short.weight", {f32, {3}, 1}},
        {"rope_factors_long.weight", {f32, {3}, 1}}},
       "tensors rope_freqs.weight and rope_factors_long.weight exclude each other"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.found);
    File file = small_file("llama");
    for (const auto& [key, value] : c.metadata) file.metadata["llama.rope.scaling." + key] = value;
    for (const auto& [name, part] : c.tensors) file.tensors[name] = part;
    expect_problem(file, c.found);
  }
}

// Converters may write q, k and v, and gate and up, as one tensor.
TEST(Understand, CutsTensorsOfSeveralRoles) {
  File file = small_file("qwen2");
  for (const char* name : {"q", "k", "v"}) {
    file.tensors.erase(fmt::format("blk.0.attn_{}.weight", name));
    file.tensors.erase(fmt::format("blk.0.attn_{}.bias", name));
  }
  file.tensors.erase("blk.0.ffn_gate.weight");
  constexpr std::int64_t kAll = (kHeads + 2 * kKvHeads) * kHeadDim;
  file.tensors["blk.0.attn_qkv.weight"].shape = {kEmbedding, kAll};
  file.tensors["blk.0.attn_qkv.bias"].shape = {kAll};
  file.tensors["blk.0.ffn_up.weight"].shape = {kEmbedding, 2 * kWidth};
  const Model model = interpret_checkpoint(file.checkpoint());
  const std::byte* qkv = model.weight(Role::attention_q)->bytes.data();
  constexpr std::int64_t kRow = kEmbedding * 4;
  EXPECT_EQ(model.weight(Role::attention_k)->bytes.data() - qkv, kHeads * kHeadDim * kRow);
  EXPECT_EQ(model.weight(Role::attention_v)->bytes.data() - qkv,
            (kHeads + kKvHeads) * kHeadDim * kRow);
  EXPECT_EQ(model.weight(Role::attention_v)->bytes.size(),
            static_cast<std::size_t>(kKvHeads * kHeadDim * kRow));
  EXPECT_EQ(model.weight(Role::attention_v_bias)->elements(), kKvHeads * kHeadDim);
  EXPECT_EQ(model.weight(Role::mlp_up)->bytes.data() - model.weight(Role::mlp_gate)->bytes.data(),
            kWidth * kRow);
  file.tensors["blk.0.attn_qkv.weight"].shape = {kEmbedding, kAll + 2};
  expect_problem(file, "attn_qkv.weight is [24, 50], but the metadata asks for [24, 48]");
}

TEST(Understand, CutsTensorsOfSeveralRolesByTheLengthsOfHeads) {
  constexpr std::int64_t kKeyDim = 8, kValueDim = 3;
  File file = with_lengths(small_file("qwen2"), "qwen2", {kKeyDim, kValueDim});
  for (const char* name : {"q", "k", "v"}) {
    file.tensors.erase(fmt::format("blk.0.attn_{}.weight", name));
    file.tensors.erase(fmt::format("blk.0.attn_{}.bias", name));
  }
  constexpr std::int64_t kQueries = kHeads * kKeyDim, kKeys = kKvHeads * kKeyDim,
                         kValues = kKvHeads * kValueDim, kAll = kQueries + kKeys + kValues;
  file.tensors["blk.0.attn_qkv.weight"].shape = {kEmbedding, kAll};
  file.tensors["blk.0.attn_qkv.bias"].shape = {kAll};
  const Model model = interpret_checkpoint(file.checkpoint());
  for (const bool is_bias : {false, true}) {
    const TensorView& q = *model.weight(is_bias ? Role::attention_q_bias : Role::attention_q);
    const TensorView& k = *model.weight(is_bias ? Role::attention_k_bias : Role::attention_k);
    const TensorView& v = *model.weight(is_bias ? Role::attention_v_bias : Role::attention_v);
    const std::int64_t row_bytes = (is_bias ? 1 : kEmbedding) * 4;
    EXPECT_EQ(k.bytes.data() - q.bytes.data(), kQueries * row_bytes);
    EXPECT_EQ(v.bytes.data() - q.bytes.data(), (kQueries + kKeys) * row_bytes);
    EXPECT_EQ(v.bytes.size(), static_cast<std::size_t>(kValues * row_bytes));
  }
  file.tensors["blk.0.attn_qkv.weight"].shape = {kEmbedding, (kHeads + 2 * kKvHeads) * kKeyDim};
  expect_problem(file, "attn_qkv.weight is [24, 64], but the metadata asks for [24, 54]");
}

// Images, sound and predicted tokens are no reason to refuse a model of text.
TEST(Understand, LeavesOutWhatIsNoText) {
  File file = with_layers(small_file("llama"), "llama", 3);
  file.metadata["llama.nextn_predict_layers"] = std::int64_t{1};
  for (const char* name :
       {"v.blk.0.attn_q.weight", "mm.0.weight", "a.conv.weight", "blk.2.nextn.eh_proj.weight"})
    file.tensors[name].shape = {kEmbedding};
  const Model model = interpret_checkpoint(file.checkpoint());
  EXPECT_EQ(model.spec.n_layers(), 2);
  EXPECT_EQ(
      left_out_texts(model, false),
      (std::vector<std::string>{"audio (1 tensors)", "prediction of further tokens (10 tensors)",
                                "vision (2 tensors)"}));
  EXPECT_EQ(left_out_texts(model, true),
            (std::vector<std::string>{"audio (1 tensors)", "vision (2 tensors)"}));
  file.metadata["llama.nextn_predict_layers"] = std::int64_t{2};
  const Model shorter = interpret_checkpoint(file.checkpoint());
  EXPECT_EQ(
      left_out_texts(shorter, true),
      (std::vector<std::string>{"audio (1 tensors)", "further layers for prediction (10 tensors)",
                                "vision (2 tensors)"}));
  file.metadata["llama.nextn_predict_layers"] = std::int64_t{3};
  expect_problem(file, "block_count is 3, expected 4");
}

TEST(Understand, RefusesWhatIsNoModelOfText) {
  File adapter = small_file("llama");
  adapter.metadata["general.type"] = std::string("adapter");
  expect_problem(adapter, "is an adapter (LoRA), not a model");
  File older = small_file("llama");
  older.metadata["adapter.type"] = std::string("lora");
  expect_problem(older, "is an adapter (LoRA)");
  File images = small_file("llama");
  images.metadata["general.architecture"] = std::string("clip");
  expect_problem(images, "sees images or hears sound (mmproj)");
  images = small_file("llama");
  images.metadata["general.type"] = std::string("mmproj");
  expect_problem(images, "(mmproj)");
  File model = small_file("llama");
  model.metadata["general.type"] = std::string("model");
  EXPECT_EQ(problem_of(model), "");
}

// A row without a token could be chosen and not be written; a token without a row not be read.
TEST(Understand, WantsARowForEveryTokenAndATokenForEveryRow) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    File file = small_file(family);
    file.metadata["tokenizer.ggml.tokens"] = words(kVocabulary);
    EXPECT_EQ(problem_of(file), "");
    for (const std::int64_t n_tokens : {kVocabulary - 1, kVocabulary + 1}) {
      file.metadata["tokenizer.ggml.tokens"] = words(n_tokens);
      expect_problem(file, fmt::format("[24, 5], 5 rows for a vocabulary of {} tokens", n_tokens));
    }
    file.metadata["tokenizer.ggml.tokens"] = words(kVocabulary);
    file.tensors["output.weight"] = {TensorType::f32, {kEmbedding, kVocabulary + 1}};
    expect_problem(file, "tensor output.weight is [24, 6], but the metadata asks for [24, 5]");
    file.tensors.erase("output.weight");
    file.tensors["token_embd.weight"].shape = {kEmbedding * kVocabulary};
    expect_problem(file, "[120], 1 rows for a vocabulary of 5 tokens");
    file.tensors["token_embd.weight"].shape = {kEmbedding, 1, kVocabulary};
    expect_problem(file, "tensor token_embd.weight is [24, 1, 5]");
  }
}

TEST(Understand, CountsWhatATokenReads) {
  File file = small_file("llama");
  constexpr std::int64_t kLayer =
      2 * kEmbedding * (kHeads + kKvHeads) * kHeadDim + 3 * kEmbedding * kWidth;
  constexpr std::int64_t kHead = kEmbedding * kVocabulary, kNorms = 3 * kEmbedding;
  const Model tied = interpret_checkpoint(file.checkpoint());
  EXPECT_EQ(weights_per_token(tied), std::size_t{kLayer + kHead});
  EXPECT_EQ(bytes_per_token(tied), std::size_t{4 * (kLayer + kHead + kNorms)});
  file.tensors["output.weight"] = {TensorType::f32, {kEmbedding, kVocabulary}};
  const Model untied = interpret_checkpoint(file.checkpoint());  // and one row of the embedding
  EXPECT_EQ(weights_per_token(untied), std::size_t{kLayer + kHead});
  EXPECT_EQ(bytes_per_token(untied), std::size_t{4 * (kLayer + kHead + kNorms + kEmbedding)});
}

}  // namespace
}  // namespace outrider

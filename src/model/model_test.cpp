// A file is a model whose shapes agree, or an Error that says where they do not.

#include "model/model.h"

#include <gtest/gtest.h>

#include <cmath>
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
};

// A model file that a test may change before it is written; all weights are zero.
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
      writer.add_tensor(name, part.type, part.shape,
                        std::vector<std::byte>(elements / of.block_elements * of.block_bytes));
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

// One layer of a family, with the keys that are not optional.
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
  set("attention.layer_norm_rms_epsilon", 1e-5);
  if (family == "gemma3") set("attention.sliding_window", std::int64_t{16});

  const auto tensor = [&](const char* name, std::vector<std::int64_t> shape) {
    file.tensors[name].shape = std::move(shape);
  };
  tensor("token_embd.weight", {kEmbedding, kVocabulary});
  tensor("output_norm.weight", {kEmbedding});
  tensor("blk.0.attn_norm.weight", {kEmbedding});
  tensor("blk.0.attn_q.weight", {kEmbedding, kHeads * kHeadDim});
  tensor("blk.0.attn_k.weight", {kEmbedding, kKvHeads * kHeadDim});
  tensor("blk.0.attn_v.weight", {kEmbedding, kKvHeads * kHeadDim});
  tensor("blk.0.attn_output.weight", {kHeads * kHeadDim, kEmbedding});
  tensor("blk.0.ffn_norm.weight", {kEmbedding});
  tensor("blk.0.ffn_gate.weight", {kEmbedding, kWidth});
  tensor("blk.0.ffn_up.weight", {kEmbedding, kWidth});
  tensor("blk.0.ffn_down.weight", {kWidth, kEmbedding});
  if (family == "qwen2") {
    tensor("blk.0.attn_q.bias", {kHeads * kHeadDim});
    tensor("blk.0.attn_k.bias", {kKvHeads * kHeadDim});
    tensor("blk.0.attn_v.bias", {kKvHeads * kHeadDim});
  }
  if (family == "gemma3") {
    tensor("blk.0.attn_q_norm.weight", {kHeadDim});
    tensor("blk.0.attn_k_norm.weight", {kHeadDim});
    tensor("blk.0.post_attention_norm.weight", {kEmbedding});
    tensor("blk.0.post_ffw_norm.weight", {kEmbedding});
  }
  return file;
}

std::string problem_of(const File& file) {
  try {
    understand(file.checkpoint());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The error of a changed file is one line that begins with the file's name and holds `found`.
void expect_problem(const File& file, const std::string& found) {
  const std::string problem = problem_of(file);
  EXPECT_TRUE(problem.starts_with("test.gguf: ")) << problem;
  EXPECT_NE(problem.find(found), problem.npos) << problem;
  for (const char c : problem) EXPECT_GE(static_cast<unsigned char>(c), ' ') << problem;
}

constexpr const char* kFamilies[] = {"llama", "qwen2", "gemma3"};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> words(std::size_t n) {
  return std::vector<std::string>(n, "word");
}

TEST(Understand, ReadsASmallModelOfEveryFamily) {
  for (const char* family : kFamilies) {
    SCOPED_TRACE(family);
    const Model model = understand(small_file(family).checkpoint());
    EXPECT_EQ(model.spec.family, family);
    EXPECT_EQ(model.spec.n_layers(), 1);
    EXPECT_EQ(model.spec.vocabulary, kVocabulary);
    EXPECT_EQ(model.spec.context_trained, 128);
    const auto& attention = std::get<Attention>(model.spec.layers[0].operations[0].body);
    EXPECT_EQ(attention.n_heads, kHeads);
    EXPECT_EQ(attention.n_kv_heads, kKvHeads);
    EXPECT_EQ(attention.head_dim, kHeadDim);
    EXPECT_EQ(attention.rope->dims(), kHeadDim);
    EXPECT_EQ(attention.has_bias, std::string(family) == "qwen2");
    EXPECT_EQ(attention.qk_norm == HeadNorm::shared, std::string(family) == "gemma3");
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
        understand(with_layers(small_file(c.family), c.family, 2).checkpoint()).spec;
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
  const ModelSpec spec = understand(file.checkpoint()).spec;
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

// By the width of the embedding over the heads, of which a head's own length is not the result.
TEST(Understand, Gemma3Of27BScalesScoresItsOwnWay) {
  constexpr std::int64_t kLong = 12;
  File file = small_file("gemma3");
  file.metadata["gemma3.attention.key_length"] = kLong;
  file.metadata["gemma3.attention.value_length"] = kLong;
  file.tensors["blk.0.attn_q.weight"].shape = {kEmbedding, kHeads * kLong};
  file.tensors["blk.0.attn_k.weight"].shape = {kEmbedding, kKvHeads * kLong};
  file.tensors["blk.0.attn_v.weight"].shape = {kEmbedding, kKvHeads * kLong};
  file.tensors["blk.0.attn_output.weight"].shape = {kHeads * kLong, kEmbedding};
  file.tensors["blk.0.attn_q_norm.weight"].shape = {kLong};
  file.tensors["blk.0.attn_k_norm.weight"].shape = {kLong};
  for (const int n_layers : {61, 62}) {
    const ModelSpec spec = understand(with_layers(file, "gemma3", n_layers).checkpoint()).spec;
    const double divisor = n_layers == 62 ? static_cast<double>(kEmbedding) / kHeads : kLong;
    EXPECT_EQ(std::get<Attention>(spec.layers[0].operations[0].body).scale, 1 / std::sqrt(divisor));
  }
}

TEST(Understand, MissesEveryKeyThatIsNotOptional) {
  for (const char* family : kFamilies) {
    const File whole = small_file(family);
    for (const auto& [key, value] : whole.metadata) {
      if (key.ends_with("head_count_kv")) continue;  // absent: as many as heads
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
           {MetadataValue(true), MetadataValue(std::vector<std::int64_t>{1}),
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
  const Case cases[] = {
      {"block_count", whole(0), "block_count is 0, expected 1 to 256"},
      {"block_count", whole(-1), "block_count is -1"},
      {"block_count", whole(kMaxLayers + 1), "block_count is 257"},
      {"block_count", whole(std::int64_t{1} << 31), "block_count is 2147483648"},
      {"block_count", whole(2), "tensor blk.1.attn_norm.weight is missing"},
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
      {"attention.key_length", whole(8), "keys of 8 and values of 6 channels"},
      {"attention.value_length", whole(2), "keys of 6 and values of 2 channels"},
      {"attention.layer_norm_rms_epsilon", kNan, "epsilon is nan"},
      {"attention.layer_norm_rms_epsilon", -1e-6, "epsilon is -1e-06"},
      {"attention.layer_norm_rms_epsilon", kInfinity, "epsilon is inf"},
      {"rope.freq_base", kNan, "freq_base is nan"},
      {"rope.freq_base", 0.0, "freq_base is 0"},
      {"rope.freq_base", kInfinity, "freq_base is inf"},
      {"rope.dimension_count", whole(5), "rope turns 5 of a head's 6 channels"},
      {"rope.dimension_count", whole(8), "rope turns 8 of a head's 6 channels"},
      {"rope.dimension_count", whole(-2), "dimension_count is -2"},
      {"rope.scaling.type", std::string("dynamic"), "rope scaling \"dynamic\""},
      {"rope.scaling.type", std::string("yarn"), "rope.scaling.factor is missing"},
      {"rope.scaling.attn_factor", 0.0, "rope.scaling.attn_factor is 0"},
      {"rope.scaling.type", std::string("a\033[31m\n"), "rope scaling \"a\\x1b[31m\\x0a\""},
      {"rope.scaling.type", std::string("linear"), "rope.scaling.factor is missing"},
      {"attention.sliding_window", whole(0), "sliding_window is 0"},
      {"attention.sliding_window", whole(std::int64_t{1} << 32), "sliding_window is 4294967296"},
  };
  for (const char* family : kFamilies) {
    for (const Case& c : cases) {
      if (std::string(c.key) == "attention.sliding_window" && std::string(family) != "gemma3")
        continue;
      SCOPED_TRACE(fmt::format("{}.{}: {}", family, c.key, c.found));
      File file = small_file(family);
      file.metadata[fmt::format("{}.{}", family, c.key)] = c.value;
      expect_problem(file, c.found);
    }
  }
}

TEST(Understand, RefusesLinearScalingByAnAbsurdFactor) {
  for (const double factor : {0.0, 0.5, -1.0, 1e7, kInfinity, kNan}) {
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
       {"blk.1.attn_q.weight", "blk.0.attn_q_norm.weight", "evil\033[31m\nname"}) {
    File file = small_file("llama");
    file.tensors[name] = {TensorType::f32, {4}};
    expect_problem(file, "has no place in architecture \"llama\"");
  }
}

// What a file says of its rope beyond a base: each lie has a line of its own.
TEST(Understand, SaysWhatIsWrongWithScaledRope) {
  struct Case {
    std::map<std::string, MetadataValue> metadata;
    std::map<std::string, std::vector<std::int64_t>> tensors;
    const char* found;
  };
  const std::string yarn = "yarn", longrope = "longrope";
  const std::int64_t length = 64;
  const Case cases[] = {
      {{}, {{"rope_freqs.weight", {4}}}, "rope_freqs.weight is F32 [4], expected F32 [3]"},
      {{}, {{"rope_freqs.weight", {3}}}, "rope_freqs.weight holds 0, expected numbers from 0.7"},
      {{{"type", yarn}, {"factor", 4.0}}, {}, "scaling.original_context_length is missing"},
      {{{"type", yarn}, {"factor", 0.5}}, {}, "scaling.factor is 0.5"},
      {{{"type", yarn},
        {"factor", 4.0},
        {"original_context_length", length},
        {"yarn_ext_factor", 0.0}},
       {},
       "yarn_ext_factor is 0, expected 1"},
      {{{"type", yarn},
        {"factor", 4.0},
        {"original_context_length", length},
        {"yarn_beta_fast", kNan}},
       {},
       "yarn_beta_fast is nan"},
      {{{"type", longrope}}, {{"rope_factors_long.weight", {2}}}, "long.weight is F32 [2]"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.found);
    File file = small_file("llama");
    for (const auto& [key, value] : c.metadata) file.metadata["llama.rope.scaling." + key] = value;
    for (const auto& [name, shape] : c.tensors) file.tensors[name].shape = shape;
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
  const Model model = understand(file.checkpoint());
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

// Images, sound and predicted tokens are no reason to refuse a model of text.
TEST(Understand, LeavesOutWhatIsNoText) {
  File file = with_layers(small_file("llama"), "llama", 3);
  file.metadata["llama.nextn_predict_layers"] = std::int64_t{1};
  for (const char* name :
       {"v.blk.0.attn_q.weight", "mm.0.weight", "a.conv.weight", "blk.2.nextn.eh_proj.weight"})
    file.tensors[name].shape = {kEmbedding};
  const Model model = understand(file.checkpoint());
  EXPECT_EQ(model.spec.n_layers(), 2);
  EXPECT_EQ(model.left_out, (std::vector<std::string>{"audio (1 tensors)",
                                                      "prediction of further tokens (10 tensors)",
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
  const Model tied = understand(file.checkpoint());
  EXPECT_EQ(weights_per_token(tied), std::size_t{kLayer + kHead});
  EXPECT_EQ(bytes_per_token(tied), std::size_t{4 * (kLayer + kHead + kNorms)});
  file.tensors["output.weight"] = {TensorType::f32, {kEmbedding, kVocabulary}};
  const Model untied = understand(file.checkpoint());  // and one row of the embedding
  EXPECT_EQ(weights_per_token(untied), std::size_t{kLayer + kHead});
  EXPECT_EQ(bytes_per_token(untied), std::size_t{4 * (kLayer + kHead + kNorms + kEmbedding)});
}

}  // namespace
}  // namespace outrider

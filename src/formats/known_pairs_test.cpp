#include "formats/known_pairs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "formats/gguf.h"

namespace outrider {
namespace {

// What known_model() looks at in a file.
struct Described {
  std::string architecture, pre, name;
  std::int64_t layers = 0, embedding = 0;
  std::vector<ModelSeries::Mark> tokens = {};

  Metadata metadata() const {
    Metadata out("test.gguf");
    out.insert("general.architecture", architecture);
    if (!name.empty()) out.insert("general.name", name);
    if (!pre.empty()) out.insert("tokenizer.ggml.pre", pre);
    out.insert(architecture + ".block_count", layers);
    out.insert(architecture + ".embedding_length", embedding);
    std::vector<std::string> vocabulary(160'000);
    for (const ModelSeries::Mark& mark : tokens) vocabulary[mark.token] = mark.text;
    out.insert("tokenizer.ggml.tokens", std::move(vocabulary));
    return out;
  }
};

std::string name_of(const Described& file) {
  const KnownModel* const model = known_model(file.metadata());
  return model ? model->name : "";
}

TEST(KnownPairs, FilesAreRecognized) {
  const ModelSeries::Mark eom{128008, "<|eom_id|>"},
      reserved{128008, "<|reserved_special_token_4|>"};
  const ModelSeries::Mark r1{128000, "<｜begin▁of▁sentence｜>"}, chat{151645, "<|im_end|>"};
  const ModelSeries::Mark tool{151657, "<tool_call>"}, think{151667, "<think>"};
  struct Case {
    Described file;
    const char* expected;
  };
  const Case cases[] = {
      {{"llama", "llama-bpe", "Llama 3.2 1B Instruct", 16, 2048, {eom}}, "Llama 3.2 1B"},
      {{"llama", "llama-bpe", "Meta Llama 3.1 8B", 32, 4096, {eom}}, "Llama 3.1 8B"},
      {{"llama", "", "whatever", 32, 4096, {eom}}, "Llama 3.1 8B"},
      {{"llama", "llama-bpe", "Meta Llama 3 8B", 32, 4096, {reserved}}, "Llama 3 8B"},
      {{"llama", "llama-bpe", "Distill", 80, 8192, {eom, r1}}, "DeepSeek-R1-Distill-Llama 70B"},
      {{"llama", "llama-bpe", "Mistral 7B", 32, 4096, {}}, ""},
      {{"llama", "llama-bpe", "Llama 3.1 9B", 33, 4096, {eom}}, ""},
      {{"llama", "llama-bpe", "Llama 3.1 9B", 32, 4097, {eom}}, ""},
      {{"llama", "smollm", "Smollm2 135M 8k Lc100K Mix1 Ep2", 30, 576, {}}, "SmolLM2 135M"},
      {{"llama", "smollm", "SmolLM 135M", 30, 576, {}}, ""},
      {{"llama", "llama-bpe", "SmolLM2 135M", 30, 576, {}}, ""},
      {{"llama", "falcon3", "", 28, 3072, {}}, "Falcon 3 7B"},
      {{"qwen2", "qwen2", "Qwen2.5 Coder 1.5B Instruct", 28, 1536, {chat, tool}},
       "Qwen2.5-Coder 1.5B"},
      {{"qwen2", "qwen2", "Qwen2.5 1.5B Instruct", 28, 1536, {chat, tool}}, "Qwen2.5 1.5B"},
      {{"qwen2", "qwen2", "Qwen2 1.5B Instruct", 28, 1536, {chat}}, "Qwen2 1.5B"},
      {{"qwen2", "deepseek-r1-qwen", "R1", 28, 1536, {}}, "DeepSeek-R1-Distill-Qwen 1.5B"},
      {{"qwen2", "qwen2", "QwQ 32B", 64, 5120, {chat, tool, think}}, "QwQ 32B"},
      {{"qwen2", "qwen2", "Qwen2.5 32B", 64, 5120, {chat, tool}}, "Qwen2.5 32B"},
      {{"qwen2", "qwen2", "MiMo 7B RL", 36, 4096, {chat, tool}}, "MiMo 7B RL"},
      {{"qwen2", "qwen2", "MiMo 7B RL 0530", 36, 4096, {chat, tool}}, "MiMo 7B RL-0530"},
      {{"qwen2", "qwen2", "MiMo 7B Base", 36, 4096, {chat, tool}}, "MiMo 7B Base"},
      {{"qwen2", "qwen2", "MiMo 8B", 36, 4096, {chat, tool}}, ""},
      {{"qwen3", "qwen2", "Qwen3 0.6B", 28, 1024, {chat, tool, think}}, "Qwen3 0.6B"},
      {{"qwen3", "qwen2", "Qwen3 0.6B", 28, 1024, {chat, tool}}, ""},
      {{"gemma2", "", "", 26, 2304, {}}, "Gemma 2 2B"},
      {{"gemma3", "", "", 18, 640, {}}, "Gemma 3 270M"},
      {{"granite", "refact", "", 40, 2048, {}}, "Granite 3 2B"},
      {{"granite", "dbrx", "", 40, 2048, {}}, ""},
      {{"olmo2", "dbrx", "OLMo 2 1124 13B", 40, 5120, {}}, "OLMo 2 13B"},
      {{"olmo2", "dbrx", "Olmo 3 7B", 32, 4096, {}}, ""},
      {{"starcoder2", "", "", 40, 6144, {}}, "StarCoder 2 15B"},
      {{"mistral3", "tekken", "Ministral 3 14B", 40, 5120, {}}, "Ministral 3 14B"},
      {{"mistral3", "tekken", "Mistral Small 3.2 24B", 40, 5120, {}}, ""},
      {{"phi3", "", "", 32, 3072, {}}, ""},
      {{"llama", "default", "Vicuna 7b v1.3", 32, 4096, {}}, "Vicuna 1.3 7B"},
      {{"llama", "default", "Vicuna 7b v1.5", 32, 4096, {}}, ""},
      {{"llama", "default", "Mistral 7B Instruct v0.2", 32, 4096, {}}, "Mistral 7B Instruct 0.2"},
      {{"llama", "default", "Mistral 7B Instruct v0.1", 32, 4096, {}}, ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{} {}", c.file.architecture, c.file.name));
    EXPECT_EQ(name_of(c.file), c.expected);
  }
}

TEST(KnownPairs, TheBasenameIsEnough) {
  Metadata metadata =
      Described{"qwen2", "qwen2", "A tune", 28, 1536, {{151657, "<tool_call>"}}}.metadata();
  ASSERT_NE(known_model(metadata), nullptr);
  EXPECT_EQ(known_model(metadata)->name, "Qwen2.5 1.5B");
  metadata.insert("general.basename", std::string("Qwen2.5-Coder"));
  EXPECT_EQ(known_model(metadata)->name, "Qwen2.5-Coder 1.5B");
}

// Files may say anything.
TEST(KnownPairs, KeysOfAnotherTypeAgreeWithNothing) {
  const Described sound{"gemma3", "", "", 18, 640, {}};
  ASSERT_EQ(name_of(sound), "Gemma 3 270M");
  const Metadata whole = sound.metadata();
  for (const char* wrong :
       {"general.architecture", "gemma3.block_count", "gemma3.embedding_length"}) {
    for (const MetadataValue& other : {MetadataValue(true), MetadataValue(~std::uint64_t{0}),
                                       MetadataValue(std::vector<std::int64_t>{18})}) {
      Metadata metadata;
      for (const auto& [key, value] : whole.entries())
        metadata.insert(key, key == wrong ? other : value);
      EXPECT_EQ(known_model(metadata), nullptr) << wrong;
    }
  }
  EXPECT_EQ(known_model(Metadata()), nullptr);
  Metadata no_list = Described{"llama", "llama-bpe", "", 16, 2048, {}}.metadata();
  EXPECT_EQ(known_model(no_list), nullptr);
}

TEST(KnownPairs, PairsGoOneWay) {
  const auto find = [](const std::string& name) -> const KnownModel* {
    for (const ModelSeries& series : model_series())
      for (const KnownModel& model : series.models)
        if (model.name == name) return &model;
    return nullptr;
  };
  const KnownModel *large = find("Qwen2.5-Coder 1.5B"), *small = find("Qwen2.5-Coder 0.5B");
  EXPECT_TRUE(is_known_pair(large, small));
  EXPECT_FALSE(is_known_pair(small, large));
  EXPECT_FALSE(is_known_pair(large, large));
  EXPECT_FALSE(is_known_pair(find("Qwen2.5 7B"), small));
  EXPECT_FALSE(is_known_pair(nullptr, small));
  EXPECT_FALSE(is_known_pair(large, nullptr));
  EXPECT_TRUE(is_known_pair(find("Llama 3.1 or 3.3 70B"), find("Llama 3.2 1B")));
}

TEST(KnownPairs, HeadsAreNamedByModel) {
  const auto heads_of = [](const Described& file) { return known_model(file.metadata())->heads; };
  const ModelSeries::Mark eom{128008, "<|eom_id|>"};
  const ModelSeries::Mark chat{151645, "<|im_end|>"}, think{151667, "<think>"};
  EXPECT_EQ(heads_of({"llama", "llama-bpe", "", 32, 4096, {eom}}).front(),
            "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B");
  EXPECT_EQ(heads_of({"qwen3", "qwen2", "", 28, 2048, {chat, think}}),
            std::vector<std::string>{"AngelSlim/Qwen3-1.7B_eagle3"});
  EXPECT_TRUE(heads_of({"gemma3", "", "", 18, 640, {}}).empty());
  std::set<std::string> names;
  for (const ModelSeries& series : model_series())
    for (const KnownModel& model : series.models)
      for (const std::string& head : model.heads) EXPECT_TRUE(names.insert(head).second) << head;
  EXPECT_GT(names.size(), 15u);
}

TEST(KnownPairs, NamesAreUnique) {
  std::set<std::string> names;
  for (const ModelSeries& series : model_series())
    for (const KnownModel& model : series.models)
      EXPECT_TRUE(names.insert(model.name).second) << model.name;
  EXPECT_GT(names.size(), 50u);
}

TEST(KnownPairs, MalformedTextIsAnError) {
  const std::string good = R"({"series": [{"architecture": "a", "tokens": {"7": "x"}, "models": [
      {"name": "S", "layers": 2, "embedding": 10, "drafts": []},
      {"name": "L", "layers": 2, "embedding": 20, "drafts": ["S"], "heads": ["o/h"]}]}]})";
  const auto series = parse_model_series(good, "p");
  ASSERT_EQ(series.size(), 1u);
  EXPECT_EQ(series[0].models[1].drafts, std::vector<std::string>{"S"});
  EXPECT_EQ(series[0].models[1].heads, std::vector<std::string>{"o/h"});
  EXPECT_TRUE(series[0].models[0].heads.empty());
  EXPECT_EQ(series[0].marks[0].token, 7u);
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"{\"series\"", "{\"series", "parse error"},
      {"\"series\"", "\"serie\"", "'series' not found"},
      {"\"architecture\": \"a\",", "", "'architecture' not found"},
      {"\"7\"", "\"seven\"", "token \"seven\" is no number"},
      {"\"x\"", "5", "must be string"},
      {"\"layers\": 2", "\"layers\": 0", "S: a size is 0, expected 1 to 1048576"},
      {"\"embedding\": 20", "\"embedding\": 1e18", "L: a size is 1000000000000000000"},
      {"\"embedding\": 20", "\"embedding\": 10", "L: its draft S is no smaller"},
      {"[\"S\"]", "[\"X\"]", "L: its draft X is not in the series"},
      {"o/h", "h", "L: its head is \"h\", expected OWNER/NAME"},
      {"o/h", "/h", "L: its head is \"/h\", expected OWNER/NAME"},
      {"o/h", "o/h/i", "L: its head is \"o/h/i\", expected OWNER/NAME"},
      {"[\"o/h\"]", "\"o/h\"", "must be array"},
  };
  for (const auto& [from, to, message] : cases) {
    SCOPED_TRACE(to);
    std::string bad = good;
    ASSERT_NE(bad.find(from), std::string::npos);
    bad.replace(bad.find(from), std::string(from).size(), to);
    try {
      parse_model_series(bad, "p.json");
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      const std::string line = error.what();
      EXPECT_TRUE(line.starts_with("p.json: ")) << line;
      EXPECT_NE(line.find(message), line.npos) << line;
    }
  }
}

// The files of the catalogue, of which two are a pair.
TEST(KnownPairs, RealModels) {
  const char* cache = std::getenv("OUTRIDER_CACHE");
  if (cache == nullptr) GTEST_SKIP() << "OUTRIDER_CACHE is not set";
  const std::pair<const char*, const char*> cases[] = {
      {"smollm2-135m.gguf", "SmolLM2 135M"},
      {"qwen2.5-coder-0.5b.gguf", "Qwen2.5-Coder 0.5B"},
      {"qwen2.5-coder-1.5b.gguf", "Qwen2.5-Coder 1.5B"},
      {"gemma3-270m.gguf", "Gemma 3 270M"},
  };
  int n_read = 0;
  for (const auto& [file, name] : cases) {
    const std::filesystem::path path = std::filesystem::path(cache) / "models" / file;
    if (!std::filesystem::exists(path)) continue;
    SCOPED_TRACE(file);
    const Checkpoint checkpoint = read_gguf(path);
    const KnownModel* const model = known_model(checkpoint.metadata);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->name, name);
    ++n_read;
  }
  if (n_read == 0) GTEST_SKIP() << "no model in " << cache;
}

}  // namespace
}  // namespace outrider

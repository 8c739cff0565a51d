// Folders of features: the same bytes however answers are batched and however often the work is
// interrupted, and rows that are what one pass over the text computes.

#include "training/features.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/error.h"
#include "cpu/backend.h"
#include "formats/safetensors.h"
#include "numerics/half.h"
#include "runtime/runtime.h"
#include "support/tiny_model.h"
#include "training/own_prompts.h"
#include "training/repetition.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

constexpr int kParallel = 7;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    files[entry.path().filename()] = read(entry.path());
  return files;
}

template <typename T>
std::vector<T> values_of(const Checkpoint& file, const char* name) {
  const TensorView& tensor = *file.find(name);
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// As a signal would end the work.
struct Stopped {};

class FeaturesTest : public ::testing::Test {
 protected:
  FeaturesTest() {
    fs::create_directories(root_);
    const auto bytes = testing::tiny_gguf({});
    std::ofstream(root_ / "model.gguf", std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    for (int i = 0; i < 70; ++i)
      prompts_.push_back(fmt::format("{} prompt, which is number {}", i % 3 == 0 ? "A" : "One", i));
  }
  ~FeaturesTest() override { fs::remove_all(root_); }

  Runtime open(int n_sequences, const std::string& model = "") {
    return Runtime({.model = model.empty() ? (root_ / "model.gguf").string() : model,
                    .context = 256,
                    .n_sequences = n_sequences},
                   [](const Model&) -> const BackendFactory& { return cpu_backends(); }, {});
  }

  FeatureWork work(int n_parallel) const {
    return {.data = prompts_,
            .n_tokens = 100'000,
            .n_predict = 20,
            .n_parallel = n_parallel,
            .seed = 5};
  }

  static nlohmann::json about(const Runtime& runtime, const FeatureWork& work) {
    return {{"model", describe_target(runtime.target_model(), {})}, {"texts", json_of(work)}};
  }

  // n_steps: after so many the work is stopped.
  FeatureCounts make(const fs::path& folder, const FeatureWork& work,
                     std::optional<int> n_steps = {}, const std::string& model = "") {
    Runtime runtime = open(work.n_parallel, model);
    const auto engine = runtime.make_engine({});
    FeatureFolder features(folder, about(runtime, work), runtime.target_model().model);
    int n = 0;
    return make_features(*engine, runtime.target_model(), features, work,
                         {.stepped = [&](std::uint64_t, std::uint64_t) {
                           if (n_steps && n++ == *n_steps) throw Stopped();
                         }});
  }

  const fs::path root_ = fs::path(::testing::TempDir()) / fmt::format("{}_features", ::getpid());
  std::vector<std::string> prompts_;
};

TEST_F(FeaturesTest, BatchesDoNotChangeABit) {
  const FeatureCounts counts = make(root_ / "single", work(1));
  EXPECT_EQ(counts.n_shards, 2);
  EXPECT_EQ(counts.n_prompts, 70);
  EXPECT_GT(counts.answer_tokens, 70u);
  make(root_ / "batched", work(kParallel));
  EXPECT_EQ(files_of(root_ / "single"), files_of(root_ / "batched"));
}

TEST_F(FeaturesTest, RowsAreWhatOnePassComputes) {
  make(root_ / "out", work(kParallel));
  const Checkpoint shard = read_safetensors(root_ / "out/shard-00001.safetensors");
  const auto tokens = values_of<std::int32_t>(shard, "tokens");
  const auto lengths = values_of<std::int32_t>(shard, "lengths");
  const auto features = values_of<std::uint16_t>(shard, "features");
  const auto final = values_of<std::uint16_t>(shard, "final");
  EXPECT_EQ(values_of<std::int32_t>(shard, "prompts"), (std::vector{64, 65, 66, 67, 68, 69}));
  EXPECT_EQ(values_of<float>(shard, "temperatures"),
            (std::vector<float>{0.8f, 0.8f, 0, 0, 0.8f, 0.8f}));

  Runtime runtime = open(1);
  Backend& target = runtime.target();
  const int width = target.spec().embedding;
  std::vector<int> taps = feature_taps(target.spec());
  ASSERT_EQ(taps, (std::vector{1, 0, 0}));  // of three layers
  taps.push_back(target.spec().n_layers());
  std::size_t token = 0, row = 0;
  for (const int length : lengths) {
    const OwnedSequence sequence(target);
    std::vector<Row> rows;
    for (int i = 0; i < length; ++i)
      rows.push_back({.sequence = sequence.id(),
                      .token = tokens[token + i],
                      .position = i,
                      .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}}});
    const Pass pass = target.forward(rows, {.layers = {}, .taps = taps});
    for (int position = 1; position < length - 1; ++position, ++row)
      for (int tap = 0; tap < 4; ++tap) {
        const std::vector<float> state = target.read_tap(pass, tap, position);
        for (int i = 0; i < width; ++i) {
          const std::uint16_t kept =
              tap == 3 ? final[row * width + i] : features[(row * 3 + tap) * width + i];
          ASSERT_EQ(kept, float_to_bf16(state[i])) << row << " " << tap << " " << i;
        }
      }
    token += static_cast<std::size_t>(length);
  }
  EXPECT_EQ(row * width, final.size());
}

TEST_F(FeaturesTest, GoesOnAfterAnInterruption) {
  make(root_ / "whole", work(kParallel));
  for (const int n_steps : {0, 3, 60, 150}) {
    SCOPED_TRACE(n_steps);
    const fs::path folder = root_ / fmt::format("stopped_{}", n_steps);
    EXPECT_THROW(make(folder, work(kParallel), n_steps), Stopped);
    // What a process leaves that was killed while it wrote.
    std::ofstream(folder / "shard-00001.safetensors.partial-99") << "a part of it";
    make(folder, work(2));
    EXPECT_EQ(files_of(folder), files_of(root_ / "whole"));
  }
}

TEST_F(FeaturesTest, MoreTokensAddShards) {
  FeatureWork less = work(kParallel);
  less.n_tokens = 30;
  const FeatureCounts first = make(root_ / "out", less);
  const auto before = files_of(root_ / "out");
  EXPECT_LT(first.n_prompts, 70);
  const FeatureCounts again = make(root_ / "out", less);
  EXPECT_EQ(again.answer_tokens, first.answer_tokens);
  EXPECT_EQ(files_of(root_ / "out"), before);
  const FeatureCounts second = make(root_ / "out", work(kParallel));
  EXPECT_EQ(second.n_prompts, 70);
  for (const auto& [name, bytes] : before)
    if (name != "prompts.jsonl") {
      EXPECT_EQ(read(root_ / "out" / name), bytes) << name;
    }
}

// The limit of a file's size stands for a full disk.
TEST_F(FeaturesTest, AFullDiskLosesNothing) {
  make(root_ / "whole", work(kParallel));
  rlimit usual;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &usual), 0);
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = fs::file_size(root_ / "whole/shard-00001.safetensors") + 100,
                     .rlim_max = usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string message;
  try {
    make(root_ / "out", work(kParallel));
  } catch (const Error& error) {
    message = error.what();
  }
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &usual), 0);
  std::signal(SIGXFSZ, ignored);
  EXPECT_EQ(message, (root_ / "out/shard-00000.safetensors").string() +
                         ": cannot be written: File too large");
  EXPECT_EQ(files_of(root_ / "out").size(), 3u);  // features.json, prompts.jsonl, target
  make(root_ / "out", work(kParallel));
  EXPECT_EQ(files_of(root_ / "out"), files_of(root_ / "whole"));
}

TEST_F(FeaturesTest, RefusesWhatItDidNotMake) {
  const auto message = [&](const fs::path& folder, const FeatureWork& work) -> std::string {
    try {
      make(folder, work);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  FeatureWork few = work(kParallel);
  few.n_tokens = 30;
  make(root_ / "out", few);
  FeatureWork other = few;
  other.seed = 6;
  EXPECT_EQ(message(root_ / "out", other),
            (root_ / "out").string() +
                ": holds features made with another \"texts\"; give another folder, or delete it");
  fs::create_directories(root_ / "full");
  std::ofstream(root_ / "full/thesis.txt") << "text";
  EXPECT_EQ(message(root_ / "full", few),
            (root_ / "full").string() +
                ": holds other files; give a folder that is empty or does not exist");
  EXPECT_TRUE(fs::exists(root_ / "full/thesis.txt"));
  EXPECT_EQ(message(root_ / "full/thesis.txt", few).substr(0, 4), "/tmp");

  FeatureWork none = few;
  none.data->clear();
  EXPECT_EQ(message(root_ / "none", none),
            (root_ / "none").string() + ": there is no prompt to answer");

  const fs::path shard = root_ / "out/shard-00000.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 1);
  EXPECT_EQ(message(root_ / "out", few).substr(0, shard.string().size()), shard.string());
  std::ofstream(root_ / "out/prompts.jsonl") << "{\"number\": 1}\n";
  EXPECT_EQ(message(root_ / "out", few), (root_ / "out/prompts.jsonl").string() +
                                             ": line 1: expected number, shard, source and prompt");
}

TEST_F(FeaturesTest, AnswersEndWhereTheyRepeatThemselves) {
  FeatureWork greedy = work(kParallel);
  greedy.n_predict = 200;
  greedy.temperature = 0;
  make(root_ / "out", greedy);
  const Checkpoint shard = read_safetensors(root_ / "out/shard-00000.safetensors");
  const auto tokens = values_of<std::int32_t>(shard, "tokens");
  const auto lengths = values_of<std::int32_t>(shard, "lengths");
  const auto prompt_lengths = values_of<std::int32_t>(shard, "prompt_lengths");
  std::size_t begin = 0, n_cut = 0;
  for (std::size_t text = 0; text < lengths.size(); ++text) {
    Repetition repetition;
    for (int i = prompt_lengths[text]; i < lengths[text]; ++i)
      ASSERT_FALSE(repetition.push(tokens[begin + i])) << text;
    n_cut += lengths[text] - prompt_lengths[text] < 200 ? 1 : 0;
    begin += static_cast<std::size_t>(lengths[text]);
  }
  EXPECT_GT(n_cut, 0u);
}

TEST_F(FeaturesTest, LearnsNothingOfWhatIsMeasured) {
  FeatureWork without = work(kParallel);
  without.without.add(prompts_[3]);
  const FeatureCounts counts = make(root_ / "out", without);
  EXPECT_EQ(counts.n_prompts, 69);
  EXPECT_EQ(counts.n_left_out, 1);
  EXPECT_EQ(read(root_ / "out/prompts.jsonl").find(prompts_[3] + "\""), std::string::npos);
}

TEST_F(FeaturesTest, TheModelsOwnPrompts) {
  const auto path = testing::cached_model("smollm2-135m.gguf");
  if (!path) GTEST_SKIP() << "smollm2-135m.gguf is not in the cache";
  const auto make_own = [&](int n_parallel, const std::string& noted) {
    Runtime runtime = open(n_parallel, path->string());
    const auto engine = runtime.make_engine({});
    const OpenedModel& model = runtime.target_model();
    OwnPrompts own(*engine, *model.tokenizer, *model.chat_template, 3, n_parallel);
    if (!noted.empty()) own.note(noted);
    return own.make(
        12, 0, [](const std::string&) { return true; }, [](int) {});
  };
  const std::vector<std::string> prompts = make_own(8, "");
  ASSERT_EQ(prompts.size(), 12u);
  EXPECT_EQ(make_own(3, ""), prompts);
  const auto tokenizer = open(1, path->string()).target_model().tokenizer;
  std::set<std::vector<Token>> beginnings;
  for (const std::string& prompt : prompts) {
    std::vector<Token> tokens = tokenizer->encode(prompt);
    EXPECT_LE(tokens.size(), 410u);  // 400 as the model said them; text can have others
    tokens.resize(std::min<std::size_t>(tokens.size(), 16));
    EXPECT_TRUE(beginnings.insert(tokens).second) << prompt;
  }
  const std::vector<std::string> others = make_own(8, prompts[0]);
  EXPECT_EQ(std::ranges::find(others, prompts[0]), others.end());
}

// Prompts that the model makes and built ones, and the answers to both.
TEST_F(FeaturesTest, OwnAndBuiltPromptsGoOnAfterAnInterruption) {
  const auto path = testing::cached_model("smollm2-135m.gguf");
  if (!path) GTEST_SKIP() << "smollm2-135m.gguf is not in the cache";
  FeatureWork own_and_built = work(8);
  own_and_built.data.reset();
  own_and_built.n_predict = 8;
  own_and_built.n_tokens = 40;
  const FeatureCounts counts = make(root_ / "whole", own_and_built, {}, path->string());
  EXPECT_GE(counts.n_own, 2);
  EXPECT_GE(counts.n_built, 2);
  for (const int n_steps : {3, 400}) {
    SCOPED_TRACE(n_steps);
    const fs::path folder = root_ / fmt::format("stopped_{}", n_steps);
    try {
      make(folder, own_and_built, n_steps, path->string());
    } catch (const Stopped&) {
    }
    own_and_built.n_parallel = 3;
    make(folder, own_and_built, {}, path->string());
    EXPECT_EQ(files_of(folder), files_of(root_ / "whole"));
  }
}

}  // namespace
}  // namespace outrider

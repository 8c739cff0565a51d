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
#include <functional>
#include <map>
#include <set>
#include <system_error>

#include "base/error.h"
#include "cpu/backend.h"
#include "formats/safetensors.h"
#include "numerics/half.h"
#include "runtime/runtime.h"
#include "support/tiny_model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
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

// A text of a shard.
struct ShardText {
  int number;  // of its prompt
  std::vector<Token> prompt, answer;
  float temperature;
};

// Of all shards, in order.
std::vector<ShardText> texts_of(const fs::path& folder) {
  std::vector<ShardText> texts;
  for (int shard = 0;; ++shard) {
    const fs::path path = folder / fmt::format("shard-{:05}.safetensors", shard);
    if (!fs::exists(path)) return texts;
    const Checkpoint file = read_safetensors(path);
    const auto tokens = values_of<std::int32_t>(file, "tokens");
    const auto lengths = values_of<std::int32_t>(file, "lengths");
    const auto prompt_lengths = values_of<std::int32_t>(file, "prompt_lengths");
    const auto prompts = values_of<std::int32_t>(file, "prompts");
    const auto temperatures = values_of<float>(file, "temperatures");
    auto at = tokens.begin();
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto end_of_prompt = at + prompt_lengths[i];
      texts.push_back({.number = prompts[i],
                       .prompt = {at, end_of_prompt},
                       .answer = {end_of_prompt, at + lengths[i]},
                       .temperature = temperatures[i]});
      at += lengths[i];
    }
  }
}

// As a signal would end the work.
struct Stopped {};
using Stops = std::function<bool()>;  // asked at each step

Stops after_steps(int n_steps) {
  return [n_steps, n = 0]() mutable { return n++ == n_steps; };
}
Stops when_there_is(const fs::path& file) {
  return [file] { return fs::exists(file); };
}

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

  FeatureCounts make(const fs::path& folder, const FeatureWork& work, const Stops& stops = {},
                     const std::string& model = "") {
    Runtime runtime = open(work.n_parallel, model);
    const auto engine = runtime.make_engine({});
    FeatureFolder features(folder, about(runtime, work), runtime.target_model().model);
    return make_features(*engine, runtime.target_model(), features, work,
                         {.stepped = [&](std::uint64_t, std::uint64_t) {
                           if (stops && stops()) throw Stopped();
                         }});
  }

  // The answers in the folder, long enough to be told apart, but for the first, are not learned
  // from. Returns the numbers of their prompts. So most of a first block is left out, and a second
  // one is made.
  std::set<int> leave_out_answers(FeatureWork& work, const fs::path& folder,
                                  const std::string& model) {
    const auto tokenizer = open(1, model).target_model().tokenizer;
    std::set<int> numbers;
    for (const ShardText& text : texts_of(folder)) {
      if (text.number == 0 || text.answer.size() <= SharedPassages::kWords) continue;
      const std::string answer = tokenizer->decode(text.answer);
      work.without.add(answer);
      if (work.without.shares_passage(answer)) numbers.insert(text.number);
    }
    return numbers;
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
    EXPECT_THROW(make(folder, work(kParallel), after_steps(n_steps)), Stopped);
    // What a process leaves that was killed while it wrote.
    std::ofstream(folder / "shard-00001.safetensors.partial-99") << "a part of it";
    make(folder, work(2));
    EXPECT_EQ(files_of(folder), files_of(root_ / "whole"));
  }
}

TEST_F(FeaturesTest, CountsWhatIsAnswered) {
  // One after another, or the last ones of both shards may end in one step.
  EXPECT_THROW(make(root_ / "out", work(1), when_there_is(root_ / "out/shard-00000.safetensors")),
               Stopped);
  Runtime runtime = open(1);
  const FeatureFolder folder(root_ / "out", about(runtime, work(kParallel)),
                             runtime.target_model().model);
  ASSERT_EQ(folder.prompts().size(), 70u);
  const FeatureCounts counts = count_features(folder);
  EXPECT_EQ(counts.n_shards, 1);
  EXPECT_EQ(counts.n_prompts, kShardTexts);
  EXPECT_EQ(counts.answer_tokens, folder.answer_tokens(0));
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
  FeatureWork larger_at_end = work(kParallel);
  for (int i = 0; i < 30; ++i)
    larger_at_end.data->push_back(fmt::format("{} {}", i, std::string(200, 'a')));
  make(root_ / "whole", larger_at_end);
  const fs::path shards[] = {"shard-00000.safetensors", "shard-00001.safetensors"};
  const std::uintmax_t first_bytes = fs::file_size(root_ / "whole" / shards[0]);
  ASSERT_GT(fs::file_size(root_ / "whole" / shards[1]), first_bytes + 100);
  for (const std::size_t n_written : {0U, 1U}) {
    SCOPED_TRACE(n_written);
    const fs::path folder = root_ / fmt::format("out_{}", n_written);
    rlimit usual;
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &usual), 0);
    const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{.rlim_cur = n_written == 0 ? first_bytes - 100 : first_bytes + 100,
                       .rlim_max = usual.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    std::string message;
    try {
      make(folder, larger_at_end);
    } catch (const Error& error) {
      message = error.what();
    }
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &usual), 0);
    std::signal(SIGXFSZ, ignored);
    EXPECT_EQ(message,
              (folder / shards[n_written]).string() + ": cannot be written: File too large");
    // features.json, prompts.jsonl and target.safetensors, too
    EXPECT_EQ(files_of(folder).size(), 3 + n_written);
    if (n_written > 0) {
      EXPECT_EQ(read(folder / shards[0]), read(root_ / "whole" / shards[0]));
    }
    make(folder, larger_at_end);
    EXPECT_EQ(files_of(folder), files_of(root_ / "whole"));
  }
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
  fs::create_directories(root_ / "download");
  std::ofstream(root_ / "download/film.partial-2") << "a part of it";
  EXPECT_NE(message(root_ / "download", few), "");
  EXPECT_TRUE(fs::exists(root_ / "download/film.partial-2"));
  EXPECT_EQ(message(root_ / "full/thesis.txt", few),
            (root_ / "full/thesis.txt").string() + ": cannot be created: " +
                std::make_error_code(std::errc::not_a_directory).message());

  FeatureWork none = few;
  none.data->clear();
  EXPECT_EQ(message(root_ / "none", none),
            (root_ / "none").string() + ": there is no prompt to answer");
  FeatureWork too_long = few;
  too_long.n_predict = 256;
  EXPECT_EQ(message(root_ / "too_long", too_long),
            "the context of 256 tokens has no room for answers of 256 tokens and their prompts: "
            "give a larger -c or a smaller -n");

  const fs::path shard = root_ / "out/shard-00000.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 1);
  EXPECT_EQ(message(root_ / "out", few).substr(0, shard.string().size()), shard.string());
  std::ofstream(root_ / "out/prompts.jsonl") << "{\"number\": 1}\n";
  EXPECT_EQ(message(root_ / "out", few), (root_ / "out/prompts.jsonl").string() +
                                             ": line 1: expected number, shard, source and prompt");
}

TEST_F(FeaturesTest, AFolderIsOfItsModelFileWhateverThatIsCalled) {
  FeatureWork few = work(kParallel);
  few.n_tokens = 30;
  make(root_ / "out", few);
  fs::create_symlink(root_ / "model.gguf", root_ / "same.gguf");
  make(root_ / "out", few, {}, (root_ / "same.gguf").string());
  const auto bytes = testing::tiny_gguf({.seed = 2});
  std::ofstream(root_ / "other.gguf", std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  EXPECT_THROW(make(root_ / "out", few, {}, (root_ / "other.gguf").string()), Error);

  const auto target_of = [&](const char* model) {
    Runtime runtime = open(1, (root_ / model).string());
    return describe_target(runtime.target_model(), {});
  };
  EXPECT_NO_THROW(check_features_of(target_of("same.gguf"), root_ / "out"));
  EXPECT_THROW(check_features_of(target_of("other.gguf"), root_ / "out"), Error);
  EXPECT_THROW(check_features_of(target_of("same.gguf"), root_ / "nowhere"), Error);
}

TEST_F(FeaturesTest, RemembersTheTimeThatWasSpent) {
  Runtime runtime = open(1);
  const auto open_folder = [&] {
    return FeatureFolder(root_ / "out", about(runtime, work(1)), runtime.target_model().model);
  };
  {
    FeatureFolder folder = open_folder();
    EXPECT_EQ(folder.seconds(), 0);
    folder.note_seconds(12.5);
  }
  EXPECT_EQ(open_folder().seconds(), 12.5);
}

// Where the same answers without an end to repetition repeat themselves, and no earlier.
TEST_F(FeaturesTest, AnswersEndWhereTheyRepeatThemselves) {
  FeatureWork greedy = work(kParallel);
  greedy.n_predict = 200;
  greedy.temperature = 0;
  make(root_ / "out", greedy);
  const std::vector<ShardText> texts = texts_of(root_ / "out");
  ASSERT_EQ(texts.size(), prompts_.size());
  std::vector<PromptToAnswer> prompts;
  for (const ShardText& text : texts)
    prompts.push_back({.number = text.number,
                       .tokens = text.prompt,
                       .sampling = {.filters = {.temperature = 0}, .bias = {}},
                       .n_predict = greedy.n_predict});
  Runtime runtime = open(kParallel);
  const auto engine = runtime.make_engine({});
  std::size_t n_cut = 0;
  const auto compare = [&](const BatchAnswer& whole) {
    std::vector<Token> expected(whole.tokens.begin() + whole.n_prompt, whole.tokens.end());
    Repetition repetition;
    for (const Token token : expected)
      if (repetition.push(token)) break;
    if (repetition.kept()) {
      expected.resize(*repetition.kept());
      ++n_cut;
    }
    EXPECT_EQ(texts[static_cast<std::size_t>(whole.number)].answer, expected) << whole.number;
  };
  answer_batch(*engine, *runtime.target_model().tokenizer, prompts, {.n_parallel = kParallel},
               compare, [](int) {});
  EXPECT_GT(n_cut, 0u);
}

TEST_F(FeaturesTest, AnswersEndAtStopTexts) {
  Runtime runtime = open(1);
  const auto engine = runtime.make_engine({});
  const Tokenizer& tokenizer = *runtime.target_model().tokenizer;
  const PromptToAnswer prompt{.tokens = tokenizer.encode(prompts_[0]),
                              .sampling = {.filters = {.temperature = 1}, .bias = {}},
                              .n_predict = 100};
  const auto answer = [&](const std::vector<std::string>& stop_texts) {
    BatchAnswer answer;
    answer_batch(
        *engine, tokenizer, {&prompt, 1}, {.stop_texts = stop_texts},
        [&](BatchAnswer each) { answer = std::move(each); }, [](int) {});
    return answer;
  };
  BatchAnswer whole = answer({});
  // The first token that is a character of its own: below 256 a token is a byte.
  const auto stop = std::find_if(whole.tokens.begin() + whole.n_prompt, whole.tokens.end(),
                                 [](Token token) { return token < 128; });
  ASSERT_NE(stop, whole.tokens.end());
  const BatchAnswer stopped = answer({tokenizer.bytes(*stop)});
  EXPECT_TRUE(stopped.has_ended);
  whole.tokens.erase(stop + 1, whole.tokens.end());
  EXPECT_EQ(stopped.tokens, whole.tokens);
}

TEST_F(FeaturesTest, LearnsNothingOfWhatIsMeasured) {
  FeatureWork without = work(kParallel);
  without.without.add(prompts_[3]);
  const FeatureCounts counts = make(root_ / "out", without);
  EXPECT_EQ(counts.n_prompts, 69);
  EXPECT_EQ(counts.n_left_out, 1);
  EXPECT_EQ(read(root_ / "out/prompts.jsonl").find(prompts_[3] + "\""), std::string::npos);
}

// Others take their place, however often the work is interrupted.
TEST_F(FeaturesTest, LeavesOutAnswersThatShareAPassage) {
  FeatureWork few = work(kParallel);
  few.n_tokens = 60;
  few.temperature = 0.8f;
  make(root_ / "first", few);
  const std::set<int> left_out = leave_out_answers(few, root_ / "first", "");
  ASSERT_FALSE(left_out.empty());
  const FeatureCounts counts = make(root_ / "whole", few);
  EXPECT_EQ(counts.n_shards, 2);
  const std::vector<ShardText> texts = texts_of(root_ / "whole");
  for (const ShardText& text : texts) EXPECT_FALSE(left_out.contains(text.number)) << text.number;
  EXPECT_GE(counts.n_left_out, std::ssize(left_out));
  EXPECT_EQ(counts.n_left_out, counts.n_prompts - std::ssize(texts));
  for (const char* file : {"prompts.jsonl", "shard-00000.safetensors"}) {
    SCOPED_TRACE(file);
    const fs::path folder = root_ / fmt::format("stopped_{}", file);
    EXPECT_THROW(make(folder, few, when_there_is(folder / file)), Stopped);
    make(folder, few);
    EXPECT_EQ(files_of(folder), files_of(root_ / "whole"));
  }
}

TEST_F(FeaturesTest, ContinuesTextsWithoutAChatTemplate) {
  Runtime runtime = open(kParallel);
  const auto engine = runtime.make_engine({});
  FeatureWork any = work(kParallel);
  any.data.reset();
  any.n_tokens = 60;
  for (const bool has_bos : {false, true}) {
    SCOPED_TRACE(has_bos);
    OpenedModel model = runtime.target_model();
    ASSERT_EQ(model.chat_template, nullptr);
    constexpr Token kBos = 270;
    auto tokenizer = make_tokenizer(model.model.checkpoint->metadata);
    if (has_bos) tokenizer->bos = kBos;
    tokenizer->add_bos = has_bos;
    model.tokenizer = std::move(tokenizer);
    const fs::path folder = root_ / fmt::format("out_{}", has_bos);
    FeatureFolder features(folder, about(runtime, any), model.model);
    const FeatureCounts counts = make_features(*engine, model, features, any, {});
    EXPECT_EQ(counts.n_own, has_bos ? (counts.n_prompts + 1) / 2 : 0);
    EXPECT_EQ(counts.n_own + counts.n_built, counts.n_prompts);
    for (const ShardText& text : texts_of(folder)) {
      const ShardPrompt& prompt = features.prompts()[static_cast<std::size_t>(text.number)];
      std::vector<Token> expected = model.tokenizer->encode(prompt.text);
      if (has_bos) expected.insert(expected.begin(), kBos);
      EXPECT_EQ(text.prompt, expected) << prompt.text;
      EXPECT_EQ(prompt.text.empty(), prompt.source == PromptSource::own);
      if (prompt.text.empty()) {
        EXPECT_EQ(text.temperature, 1);
      }
    }
  }
}

TEST_F(FeaturesTest, FindsWhereAUsersTextEnds) {
  const auto tokenizer = open(1).target_model().tokenizer;
  const std::string text = "{{ messages[0]['content'] }}";
  struct Case {
    std::string source, end;
  };
  const Case cases[] = {
      {"[INST] " + text + " [/INST]", "[/INST]"},
      {"[INST] " + text + "<|257|>\n<|258|>assistant\n", "<|257|>"},  // control tokens
      {"[INST] " + text + "\n<|258|>\n", "<|258|>"},
      {"[INST] " + text + "\n\nAssistant: <|258|>", "Assistant:"},
      {"[INST] " + text + "\n### Answer:\nIt is", "### Answer:"},
      {"[INST] " + text, ""},
      {"[INST] " + text + " {{ '\\n' }}", ""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.source);
    const UserTurn turn = user_turn(*tokenizer, ChatTemplate(c.source, "test", "", ""));
    EXPECT_EQ(turn.before, tokenizer->encode("[INST] "));
    EXPECT_EQ(turn.end, c.end);
  }
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
    EXPECT_GE(tokens.size(), 8u) << prompt;
    EXPECT_LE(tokens.size(), 410u);  // 400 as the model said them; text can have others
    tokens.resize(std::min<std::size_t>(tokens.size(), 16));
    EXPECT_TRUE(beginnings.insert(tokens).second) << prompt;
  }
  const std::vector<std::string> others = make_own(8, prompts[0]);
  EXPECT_EQ(std::ranges::find(others, prompts[0]), others.end());
}

// A template that goes on with a full stop, so that prompts end before their first one.
TEST_F(FeaturesTest, TheModelsOwnPromptsEndAsTheTemplateSays) {
  const auto path = testing::cached_model("smollm2-135m.gguf");
  if (!path) GTEST_SKIP() << "smollm2-135m.gguf is not in the cache";
  Runtime runtime = open(8, path->string());
  const auto engine = runtime.make_engine({});
  const auto make_own = [&](const std::string& after, const BuiltPrompts::Accepts& accepts) {
    const ChatTemplate chat_template(
        "<|im_start|>user\n{{ messages[0]['content'] }}" + after + "<|im_end|>", "test", "", "");
    OwnPrompts own(*engine, *runtime.target_model().tokenizer, chat_template, 3, 8);
    return own.make(12, 0, accepts, [](int) {});
  };
  const auto all = [](const std::string&) { return true; };
  const std::vector<std::string> usual = make_own("", all), ended = make_own(".", all);
  int n_shorter = 0;
  for (const std::string& prompt : ended) {
    EXPECT_EQ(prompt.find('.'), prompt.npos) << prompt;
    n_shorter += std::ranges::any_of(
        usual, [&](const std::string& other) { return other.starts_with(prompt + "."); });
  }
  EXPECT_GT(n_shorter, 0);
  // Where none is taken, a round of 12 texts is enough to see it.
  int n_refused = 0;
  const auto none = [&](const std::string&) {
    ++n_refused;
    return false;
  };
  EXPECT_TRUE(make_own("", none).empty());
  EXPECT_GT(n_refused, 0);
  EXPECT_LE(n_refused, 12);
}

// Prompts that the model makes and built ones, and the answers to both, in two blocks.
TEST_F(FeaturesTest, OwnAndBuiltPromptsGoOnAfterAnInterruption) {
  const auto path = testing::cached_model("smollm2-135m.gguf");
  if (!path) GTEST_SKIP() << "smollm2-135m.gguf is not in the cache";
  FeatureWork own_and_built = work(8);
  own_and_built.data.reset();
  own_and_built.n_predict = 14;
  own_and_built.n_tokens = 40;
  make(root_ / "first", own_and_built, {}, path->string());
  leave_out_answers(own_and_built, root_ / "first", path->string());
  const FeatureCounts counts = make(root_ / "whole", own_and_built, {}, path->string());
  EXPECT_EQ(counts.n_shards, 2);
  EXPECT_GE(counts.n_own, 2);
  EXPECT_GE(counts.n_built, 2);
  const fs::path folder = root_ / "stopped";
  const Stops cases[] = {after_steps(20), when_there_is(folder / "prompts.jsonl"),
                         when_there_is(folder / "shard-00000.safetensors")};
  for (const Stops& stops : cases) {
    SCOPED_TRACE(&stops - cases);
    fs::remove_all(folder);
    EXPECT_THROW(make(folder, own_and_built, stops, path->string()), Stopped);
    FeatureWork rest = own_and_built;
    rest.n_parallel = 3;
    make(folder, rest, {}, path->string());
    EXPECT_EQ(files_of(folder), files_of(root_ / "whole"));
  }
}

}  // namespace
}  // namespace outrider

// A runtime on files: what is loaded how often and from which factory, how the context is chosen,
// and engines that share the models.

#include "runtime/runtime.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "cpu/backend.h"
#include "formats/gguf.h"
#include "runtime/history_store.h"
#include "support/tiny_model.h"
#include "text/vocabulary_fingerprint.h"

namespace outrider {
namespace {

class TemporaryModel {
 public:
  TemporaryModel(const char* name, double perturbation)
      : path_(std::filesystem::path(::testing::TempDir()) /
              fmt::format("{}_{}.gguf", getpid(), name)) {
    const auto bytes = testing::tiny_gguf({.perturbation = perturbation});
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  ~TemporaryModel() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// The CPU's, counting what is loaded; with a need for memory of its own if one is set.
class CountingFactory final : public BackendFactory {
 public:
  std::string name() const override { return "counting"; }
  MemoryNeed memory_need(const Model& model, const LoadOptions& options) const override {
    return need ? need(options) : cpu_backends().memory_need(model, options);
  }
  std::unique_ptr<Backend> load(const Model& model, const LoadOptions& options,
                                const LoadProgress& progress) const override {
    loaded.push_back(options);
    return load_cpu(model, options, chosen_isa(), progress);
  }
  std::function<MemoryNeed(const LoadOptions& options)> need;
  mutable std::vector<LoadOptions> loaded;
};

struct RuntimeTest : ::testing::Test {
  TemporaryModel target{"target", 0}, draft{"draft", 0.2};
  CountingFactory targets, drafts;
  std::vector<std::string> notes;
  std::set<std::string> activities;  // the first words of what progress told

  // The target's device is one, the draft model's another.
  Runtime open(RuntimeOptions options) {
    options.model = target.path();
    Progress progress;
    progress.note = [&](std::string_view line) { notes.emplace_back(line); };
    progress.advance = [&](std::string_view activity, std::uint64_t, std::uint64_t) {
      activities.emplace(activity.substr(0, activity.find(' ')));
    };
    return Runtime(
        options,
        [&](const Model& model) -> const BackendFactory& {
          return model.checkpoint->path == target.path() ? targets : drafts;
        },
        progress);
  }
};

SamplingParams greedy() {
  SamplingParams params;
  params.filters.temperature = 0;
  return params;
}

TEST_F(RuntimeTest, EnginesShareModelsAndSayTheSame) {
  const auto choices = parse_draft("lookup+model", draft.path());
  Runtime runtime = open({.context = 256, .drafters = choices, .planner = {.automatic = false}});
  EXPECT_EQ(targets.loaded.size(), 1u);
  EXPECT_TRUE(drafts.loaded.empty());  // not before an engine asks
  const auto plain = runtime.make_engine({});
  const auto drafting = runtime.make_engine(choices);
  const auto again = runtime.make_engine(choices);
  EXPECT_EQ(targets.loaded.size(), 1u);
  EXPECT_EQ(drafts.loaded.size(), 1u);
  EXPECT_EQ(drafts.loaded[0].context, 256);
  EXPECT_EQ(drafts.loaded[0].requantize, TensorType::q4_128);
  EXPECT_EQ(targets.loaded[0].requantize, std::nullopt);

  std::vector<std::vector<Token>> answers;
  for (Engine* engine : {plain.get(), drafting.get(), again.get(), plain.get()}) {
    Session session = runtime.open_session(*engine);
    const std::vector<Token> prompt{65, 66, 67, 65, 66};
    const Completion answer =
        session.complete({prompt, greedy(), {.n_predict = 40, .ignore_eos = true}});
    answers.push_back(answer.tokens);
    if (engine != plain.get()) {
      EXPECT_GT(answer.counters.accepted, 0);
    }
  }
  for (const auto& answer : answers) EXPECT_EQ(answer, answers[0]);
}

// A model that nobody waits for joins the answers once it is loaded; one that cannot be loaded is
// left out.
TEST_F(RuntimeTest, LateModelsJoin) {
  for (const std::string& path : {draft.path(), std::string("nowhere.gguf")}) {
    drafts.loaded.clear();
    auto choices = parse_draft("model", path);
    choices[0].late = true;
    Runtime runtime = open(
        {.context = 256, .n_sequences = 4, .drafters = choices, .planner = {.automatic = false}});
    const auto plain = runtime.make_engine({});
    const auto engine = runtime.make_engine(choices);
    Session reference = runtime.open_session(*plain), session = runtime.open_session(*engine);
    const Request request{{65, 66, 67, 65, 66}, greedy(), {.n_predict = 40, .ignore_eos = true}};
    const std::vector<Token> expected = reference.complete(request).tokens;
    const bool exists = path == draft.path();
    long n_accepted = 0;
    for (int i = 0; i < (exists ? 10'000 : 5) && n_accepted == 0; ++i) {
      const Completion answer = session.complete(request);
      ASSERT_EQ(answer.tokens, expected);
      n_accepted += answer.counters.accepted;
    }
    EXPECT_EQ(n_accepted > 0, exists);
    EXPECT_EQ(drafts.loaded.size(), exists ? 1u : 0u);
    if (exists) {  // and is there from the start for the next engine
      const auto again = runtime.make_engine(choices);
      EXPECT_EQ(runtime.open_session(*again).complete(request).tokens, expected);
      EXPECT_EQ(drafts.loaded.size(), 1u);
    }
  }
}

// Answers of an earlier run are drafted from, but none that this model cannot have given.
TEST_F(RuntimeTest, DraftsFromTheHistory) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / fmt::format("{}_h", getpid());
  const char* const before = std::getenv("OUTRIDER_CACHE");
  const std::string restored = before ? before : "";
  setenv("OUTRIDER_CACHE", folder.c_str(), 1);
  const auto choices = parse_draft("lookup", "");
  const Request request{{65, 66, 67}, greedy(), {.n_predict = 40, .ignore_eos = true}};
  const auto answer = [&](bool with_history) {
    RuntimeOptions options{.context = 256, .drafters = choices, .planner = {.automatic = false}};
    options.keeps = with_history;
    if (with_history) options.drafter_flags = {{"--history", ""}};
    Runtime runtime = open(options);
    const auto engine = runtime.make_engine(choices);
    Session session = runtime.open_session(*engine);
    return session.complete(request);
  };
  const Completion without = answer(false);
  EXPECT_EQ(answer(true).tokens, without.tokens);
  // The index is made beside the answer, which may be over before that.
  long n_accepted = 0;
  for (int i = 0; i < 100 && n_accepted <= without.counters.accepted; ++i) {
    const Completion again = answer(true);
    ASSERT_EQ(again.tokens, without.tokens);
    n_accepted = again.counters.accepted;
  }
  EXPECT_GT(n_accepted, without.counters.accepted);

  const Model model = interpret_checkpoint(std::make_shared<Checkpoint>(read_gguf(target.path())));
  std::vector<Token> impossible(30, 1 << 24);
  impossible.insert(impossible.begin(), {65, 66, 67});
  HistoryStore(history_file(), {}).keep(identify("", *model.checkpoint), impossible);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(answer(true).tokens, without.tokens);

  // Many users' answers stay in memory.
  ASSERT_TRUE(std::filesystem::remove(history_file()));
  {
    Runtime runtime = open({.context = 256,
                            .pool = RuntimeOptions::Pool{},
                            .drafters = choices,
                            .drafter_flags = {{"--history", ""}},
                            .planner = {.automatic = false},
                            .keeps = true});
    const auto engine = runtime.make_engine(choices);
    runtime.open_session(*engine).complete(request);
  }
  EXPECT_FALSE(std::filesystem::exists(history_file()));
  before ? setenv("OUTRIDER_CACHE", restored.c_str(), 1) : unsetenv("OUTRIDER_CACHE");
  std::filesystem::remove_all(folder);
}

// What an engine has learned the next run begins with, without timing passes; only where profiles
// are kept, and only for the same settings.
TEST_F(RuntimeTest, BeginsWithWhatWasLearned) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / fmt::format("{}_p", getpid());
  const char* const before = std::getenv("OUTRIDER_CACHE");
  const std::string restored = before ? before : "";
  setenv("OUTRIDER_CACHE", folder.c_str(), 1);
  const auto choices = parse_draft("lookup+model", draft.path());
  const auto points = [&](RuntimeOptions options, bool keep) {
    options.context = 256;
    options.drafters = choices;
    Runtime runtime = open(options);
    const auto engine = runtime.make_engine(choices);
    if (keep) runtime.keep_profile(*engine);
    std::vector<double> ms;
    for (const auto& point : engine->learned().passes) ms.push_back(point.ms);
    return ms;
  };
  const auto first = points({.keeps = true}, true);
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(points({.keeps = true}, false), first);  // known, not measured
  // A command that measures may begin with it, and stores nothing.
  const auto bytes = [&] {
    std::ifstream file(folder / "profiles.db");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string stored = bytes();
  EXPECT_EQ(points({.reads_profiles = true}, true), first);
  EXPECT_EQ(bytes(), stored);
  // A fixed planner learns nothing, although a server times its passes.
  points({.pool = RuntimeOptions::Pool{}, .planner = {.automatic = false}, .keeps = true}, true);
  EXPECT_EQ(points({.keeps = true}, false), first);
  EXPECT_NE(points({.keeps = false}, true), first);
  EXPECT_NE(points({.planner = {.rows = 8}, .keeps = true}, false), first);
  const auto small = points({.cache_type = CacheType::q8_0, .keeps = true}, true);
  EXPECT_NE(points({.cache_type = CacheType::f32, .keeps = true}, false), small);
  std::ofstream(folder / "profiles.db") << "no profiles";
  EXPECT_NE(points({.keeps = true}, true), first);
  EXPECT_TRUE(std::filesystem::exists(folder / "profiles.db.damaged"));
  before ? setenv("OUTRIDER_CACHE", restored.c_str(), 1) : unsetenv("OUTRIDER_CACHE");
  std::filesystem::remove_all(folder);
}

// A head of Medusa's in TGI's layout that changes no state, so it says the next token again.
void write_medusa_head(const std::filesystem::path& folder, int width,
                       const nlohmann::json& config) {
  std::filesystem::create_directory(folder);
  std::ofstream(folder / "config.json") << config.dump();
  const int bytes = 4 * width * width;
  nlohmann::json header;
  header["0.0.linear.weight"] = {
      {"dtype", "F32"}, {"shape", {width, width}}, {"data_offsets", {0, bytes}}};
  header["0.0.linear.bias"] = {
      {"dtype", "F32"}, {"shape", {width}}, {"data_offsets", {bytes, bytes + 4 * width}}};
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream file(folder / "head.safetensors", std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text << std::string(static_cast<std::size_t>(bytes + 4 * width), '\0');
}

// A head that names the file that it was made for is measured once, after training, and with that
// file never again; with another one it is, and a loss is told at each start.
TEST_F(RuntimeTest, AHeadIsMeasuredWithAnotherFileThanItWasMadeFor) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / fmt::format("{}_m", getpid());
  const char* const before = std::getenv("OUTRIDER_CACHE");
  const std::string restored = before ? before : "";
  setenv("OUTRIDER_CACHE", folder.c_str(), 1);
  std::filesystem::create_directory(folder);
  const std::filesystem::path head = folder / "head";
  const auto tokenizer = make_tokenizer(read_gguf(target.path()).metadata);
  nlohmann::json config = {{"outrider",
                            {{"target",
                              {{"name", "tiny"},
                               {"file", sha256_of_file(target.path())},
                               {"vocabulary", hex_of(vocabulary_fingerprint(*tokenizer))},
                               {"embedding", 256},
                               {"layers", 3},
                               {"vocabulary_size", 277}}}}}};
  write_medusa_head(head, 256, config);
  const auto choices = parse_draft("medusa=" + head.string(), "");
  const auto start = [&](RuntimeOptions options) {
    options.context = 256;
    options.drafters = choices;
    notes.clear();
    activities.clear();
    return open(options).head_choice().value();
  };
  using Activities = std::set<std::string>;
  const HeadChoice made = start({.measures_head = true});
  EXPECT_EQ(activities, (Activities{"checking", "loading", "trying"}));
  EXPECT_GT(made.places, 200);
  write_agreement(head, made);
  const HeadChoice named = start({.keeps = true});
  EXPECT_EQ(activities, (Activities{"checking", "loading"}));
  EXPECT_EQ(agreement_of(named).right, agreement_of(made).right);
  EXPECT_EQ(named.places, made.places);
  EXPECT_EQ(named.type, made.type);
  // The hash is kept, and found by those who keep nothing.
  for (const bool keeps : {true, false}) {
    start({.keeps = keeps});
    EXPECT_EQ(activities, Activities{"loading"});
    EXPECT_EQ(notes, std::vector<std::string>{});
  }
  start({.keeps = true, .measures_head = true});
  EXPECT_EQ(activities, (Activities{"loading", "trying"}));

  const auto made_for_another = [&](int right, int places) {
    config["outrider"]["target"]["file"] = std::string(64, '0');
    config["outrider"]["agreement"] = {{"right", right}, {"places", places}};
    write_medusa_head(head, 256, config);
  };
  made_for_another(agreement_of(made).right, made.places);
  for (const bool is_first : {true, false}) {
    const HeadChoice found = start({.keeps = true});
    EXPECT_EQ(activities.contains("trying"), is_first);
    EXPECT_FALSE(activities.contains("checking"));
    EXPECT_EQ(agreement_of(found).right, agreement_of(made).right);
    EXPECT_EQ(notes, std::vector<std::string>{});
  }
  made_for_another(1000, 1000);
  for (const bool is_first : {true, false}) {
    start({.keeps = true});
    EXPECT_EQ(activities.contains("trying"), is_first);
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_TRUE(notes[0].starts_with(head.string() + ": made for another file (tiny): right at "));
    EXPECT_TRUE(
        notes[0].ends_with(" places of a sample text, with that file at 100% of 1000; train "
                           "one for this file: outrider train medusa -m " +
                           target.path()));
  }
  before ? setenv("OUTRIDER_CACHE", restored.c_str(), 1) : unsetenv("OUTRIDER_CACHE");
  std::filesystem::remove_all(folder);
}

TEST_F(RuntimeTest, FlagsReachTheDraftModel) {
  const auto choices = parse_draft("model", draft.path());
  Runtime runtime =
      open({.context = 128,
            .drafters = choices,
            .drafter_flags = {{"--draft-quantize", "off"}, {"--draft-vocab", "100"}}});
  runtime.make_engine(choices);
  ASSERT_EQ(drafts.loaded.size(), 1u);
  EXPECT_EQ(drafts.loaded[0].requantize, std::nullopt);
  EXPECT_EQ(drafts.loaded[0].output_ids.size(), 100u);
}

TEST_F(RuntimeTest, TheContextIsWhatFits) {
  const auto per_token = [](std::size_t bytes) {
    return [bytes](const LoadOptions& options) {
      return MemoryNeed{.cache = bytes * static_cast<std::size_t>(options.context)};
    };
  };
  const std::size_t huge = std::size_t{1} << 40;  // per token: a terabyte
  const int trained = testing::tiny_model({}).spec.context_trained;

  EXPECT_EQ(open({}).target().options().context, std::min(trained, kContextMax));
  EXPECT_TRUE(notes.empty());

  targets.need = per_token(huge);
  EXPECT_THROW(open({}), Error);
  EXPECT_THROW(open({.context = 64}), Error);

  // Not enough for all that was asked.
  targets.need = [&](const LoadOptions& options) {
    return MemoryNeed{.cache = options.context > 128 ? huge : 0};
  };
  try {
    open({.context = 200});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.remedy(), Remedy::context);
    EXPECT_NE(std::string(error.what()).find("128"), std::string::npos) << error.what();
  }
  EXPECT_EQ(open({}).target().options().context, 128);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("context 128 instead of"), std::string::npos);

  // A draft model counts, too.
  targets.need = nullptr;
  drafts.need = [&](const LoadOptions& options) {
    return MemoryNeed{.cache = options.context > 64 ? huge : 0};
  };
  EXPECT_EQ(open({.drafters = parse_draft("model", draft.path())}).target().options().context, 64);
}

// Many texts share one pool, which the draft model has a part of.
TEST_F(RuntimeTest, PlansAPoolForManyTexts) {
  constexpr std::size_t kPage = 1 << 20;
  const auto need = [&](const LoadOptions& options) {
    return MemoryNeed{.weights = 5 << 20, .cache = kPage * options.n_pages};
  };
  targets.need = drafts.need = need;
  // A page of each model takes 2 MiB; a step has 64 + 4 * 17 rows.
  RuntimeOptions options{.context = 512,
                         .prompt_chunk = 64,
                         .n_sequences = 4,
                         .pool = RuntimeOptions::Pool{.bytes = 40 * kPage},
                         .drafters = parse_draft("model", draft.path())};
  {
    Runtime runtime = open(options);
    EXPECT_EQ(runtime.target().options().n_pages, 20);
    EXPECT_EQ(runtime.target().options().batch_rows, 132);
    EXPECT_TRUE(runtime.target().options().shares_texts);
    EXPECT_EQ(runtime.pool_tokens(), 20 * 64);
    runtime.make_drafters(options.drafters);
    EXPECT_EQ(drafts.loaded.back().n_pages, 20);
    EXPECT_EQ(drafts.loaded.back().n_sequences, 4);
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes[0].find("1280 tokens (512 for one request, 4 requests at once)"),
              std::string::npos)
        << notes[0];
  }
  // No more than all texts need.
  options.pool->bytes = std::uint64_t{1} << 30;
  EXPECT_EQ(open(options).target().options().n_pages, 4 * 9 + 4 + 132 / 64 + 2);
  // One text and a step must fit: 9 pages, and 4.
  options.pool->bytes = 26 * kPage;
  EXPECT_EQ(open(options).target().options().n_pages, 13);
  options.pool->bytes = 25 * kPage;
  try {
    open(options);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.remedy(), Remedy::cache_memory);
  }
  options.pool->bytes = std::uint64_t{1} << 60;
  try {
    open(options);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.remedy(), Remedy::cache_memory) << error.what();
  }
  options.pool->bytes = 25 * kPage;
  options.context.reset();  // then it becomes as long as fits
  EXPECT_EQ(open(options).target().options().context, 7 * 64);
}

TEST_F(RuntimeTest, LoadingCanBeInterrupted) {
  int n_advances = 0;
  Progress progress;
  progress.advance = [&](std::string_view, std::uint64_t done, std::uint64_t total) {
    ++n_advances;
    EXPECT_LT(done, total);
  };
  progress.interrupted = [] { return true; };
  EXPECT_THROW(Runtime(
                   {.model = target.path()},
                   [&](const Model&) -> const BackendFactory& { return targets; }, progress),
               Error);
  EXPECT_EQ(n_advances, 1);  // no more is packed
}

}  // namespace
}  // namespace outrider

// A head proposes what it would in a fresh engine that is given the same text as a prompt, however
// its target came to the text: in chunks, from cached pages, after a cut, a fork or a preemption,
// beside other texts, in few slots.

#include <gtest/gtest.h>

#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <limits>
#include <map>

#include "cpu/backend.h"
#include "engine/engine.h"
#include "model/backend.h"
#include "model/block_rows.h"
#include "numerics/dequantize.h"
#include "sampling/fake_tokenizer.h"
#include "speculation/drafters/block.h"
#include "speculation/drafters/eagle.h"
#include "speculation/drafters/medusa.h"
#include "speculation/head_agreement.h"
#include "support/tiny_head.h"
#include "support/tiny_model.h"

namespace outrider::testing {
namespace {

constexpr int kVocabulary = 277;

// What was proposed after a text: token, parent and confidence of each node.
struct Drafted {
  Token token;
  int parent;
  float confidence;
  bool operator==(const Drafted&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Drafted& drafted) {
  return out << drafted.token << " under " << drafted.parent << " at " << drafted.confidence;
}
using Tree = std::vector<Drafted>;

std::vector<Token> random_text(int length, int seed) {
  std::vector<Token> text;
  for (int i = 0; i < length; ++i) text.push_back((i * i * 31 + i * 17 + seed * 101 + i / 7) % 256);
  return text;
}

struct SceneOptions {
  LoadOptions load = {};
  EngineOptions engine = {.planner = {.automatic = false, .rows = 8, .depth = 3, .width = 3},
                          .prompt_chunk = 0};
};

const Model& target_model() {
  static const Model model =
      tiny_model({.types = {TensorType::f16}, .n_layers = 3, .embedding = 64});
  return model;
}

enum class Kind {
  eagle,
  eagle_with_normed_state,
  eagle1,
  mtp,
  dflash,
  dspark,
  dspark_with_memory,
  medusa
};

bool is_block(Kind kind) {
  return kind == Kind::dflash || kind == Kind::dspark || kind == Kind::dspark_with_memory;
}

std::string test_name(const ::testing::TestParamInfo<Kind>& tested) {
  switch (tested.param) {
    case Kind::eagle: return "Eagle";
    case Kind::eagle_with_normed_state: return "EagleWithNormedState";
    case Kind::eagle1: return "Eagle1";
    case Kind::mtp: return "Mtp";
    case Kind::dflash: return "Dflash";
    case Kind::dspark: return "Dspark";
    case Kind::dspark_with_memory: return "DsparkWithMemory";
    case Kind::medusa: return "Medusa";
  }
  return "";
}

std::shared_ptr<const HeadToLoad> head_of(Kind kind) {
  switch (kind) {
    case Kind::medusa: return tiny_medusa_to_load(target_model());
    case Kind::eagle1: return tiny_eagle1_to_load(target_model());
    case Kind::mtp: return tiny_mtp_to_load(target_model());
    case Kind::dflash: return tiny_block_to_load(target_model());
    case Kind::dspark: return tiny_block_to_load(target_model(), {.rank = 8, .window = 7});
    case Kind::dspark_with_memory:
      return tiny_block_to_load(target_model(), {.rank = 8, .remembers = true});
    case Kind::eagle:
    case Kind::eagle_with_normed_state: break;
  }
  return tiny_head_to_load(target_model(), {.norm_output = kind == Kind::eagle_with_normed_state});
}

// An engine whose proposals are kept by text.
class Scene {
 public:
  explicit Scene(Kind kind, SceneOptions options = {}) : kind_(kind) {
    options.load.context = 256;
    options.load.cache_type = CacheType::f32;
    options.load.n_threads = 2;
    options.load.head = head_of(kind);
    target_ = load_cpu(target_model(), options.load);
    engine_ = std::make_unique<Engine>(target_, drafters(), options.engine);
    engine_->on_step([this](const StepReport& report) {
      for (const StepReport::Sequence& sequence : report.sequences) {
        if (sequence.n_proposed == 0) continue;
        Tree tree;
        for (const StepReport::Node& node : sequence.nodes)
          tree.push_back({node.token, node.parent, node.proposals[0].confidence});
        const Generation& generation = *texts_.at(sequence.id);
        // Near its end an answer gets fewer levels.
        const int n_left = *generation.stop.n_left() + static_cast<int>(sequence.emitted.size());
        if (n_left <= engine_->options().planner.depth) continue;
        const std::vector<Token> text(generation.tokens.begin(),
                                      generation.tokens.end() - std::ssize(sequence.emitted));
        trees_[text] = std::move(tree);
      }
    });
  }

  std::vector<std::unique_ptr<Drafter>> drafters() const {
    std::vector<std::unique_ptr<Drafter>> drafters;
    if (kind_ == Kind::medusa)
      drafters.push_back(std::make_unique<MedusaDrafter>(target_));
    else if (is_block(kind_))
      drafters.push_back(std::make_unique<BlockDrafter>(target_, "dflash"));
    else
      drafters.push_back(std::make_unique<EagleDrafter>(target_, "eagle"));
    return drafters;
  }
  Engine& engine() { return *engine_; }
  Backend& target() { return *target_; }
  const std::map<std::vector<Token>, Tree>& trees() const { return trees_; }
  void forget_trees() { trees_.clear(); }

  static SamplingParams greedy() {
    SamplingParams sampling;
    sampling.filters.temperature = 0;
    return sampling;
  }
  StopRules stop(int n_predict) {
    return StopRules(tokenizer_, {.n_predict = n_predict, .ignore_eos = true});
  }
  std::unique_ptr<Generation> begin(std::span<const Token> prompt, int n_predict = 16) {
    auto generation = engine_->begin(prompt, greedy(), stop(n_predict));
    watch(*generation);
    return generation;
  }
  void watch(const Generation& generation) { texts_[generation.draft_sequence] = &generation; }
  void run(std::vector<Generation*> generations) {
    while (std::erase_if(generations, [](const Generation* each) { return each->ended(); }),
           !generations.empty())
      engine_->step(generations);
  }

 private:
  const Kind kind_;
  const FakeTokenizer tokenizer_{std::vector<std::string>(kVocabulary, "x")};
  std::shared_ptr<Backend> target_;
  std::unique_ptr<Engine> engine_;
  std::map<DraftSequence, const Generation*> texts_;
  std::map<std::vector<Token>, Tree> trees_;
};

class Head : public ::testing::TestWithParam<Kind> {
 protected:
  static Tree fresh_tree(const std::vector<Token>& text, SceneOptions options = {});
  static void expect_fresh_trees(const Scene& scene, std::size_t n_least,
                                 const SceneOptions& options = {});
};

// What a fresh engine proposes after a text, whose last token is its own answer to the others.
Tree Head::fresh_tree(const std::vector<Token>& text, SceneOptions options) {
  Scene scene(GetParam(), std::move(options));
  const auto generation = scene.begin(std::span(text).first(text.size() - 1), 8);
  scene.engine().step(std::vector{generation.get()});
  EXPECT_EQ(generation->tokens, text);
  scene.engine().step(std::vector{generation.get()});
  return scene.trees().at(text);
}

void Head::expect_fresh_trees(const Scene& scene, std::size_t n_least,
                              const SceneOptions& options) {
  EXPECT_GE(scene.trees().size(), n_least);
  for (const auto& [text, tree] : scene.trees()) {
    SCOPED_TRACE(fmt::format("text of {}", text.size()));
    EXPECT_FALSE(tree.empty());
    ASSERT_EQ(tree, fresh_tree(text, options));
  }
}

TEST_P(Head, ProposesAfterAnyChunksWhatAFreshEngineDoes) {
  for (const int chunk : {1, 13, 64, 0}) {
    SCOPED_TRACE(chunk);
    SceneOptions options;
    options.engine.prompt_chunk = chunk;
    Scene scene(GetParam(), options);
    const auto generation = scene.begin(random_text(120, 1));
    scene.run({generation.get()});
    expect_fresh_trees(scene, 6);
  }
}

// A text's rows by the target and by its head of blocks.
void compute_text(Backend& target, SequenceId sequence, std::span<const Token> text) {
  std::vector<Row> rows, of_head;
  for (int i = 0; i < std::ssize(text); ++i)
    rows.push_back({.sequence = sequence,
                    .token = text[i],
                    .position = i,
                    .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}}});
  const Pass pass = target.forward(rows);
  for (int i = 0; i < std::ssize(text); ++i) {
    of_head.push_back(rows[i]);
    of_head.back().before = TargetRow{i};
    of_head.back().slot = pass.slots[i];
  }
  target.head()->forward(of_head);
  target.commit(sequence, pass.slots);
}

// A chain of what the head's rows say, one after another.
class BlockHead : public Head {};

TEST_P(BlockHead, ProposesWhatItsRowsSay) {
  SceneOptions options;
  options.load.n_sequences = 2;
  options.engine.planner = {.automatic = false, .rows = 4, .depth = 4, .width = 1};
  Scene scene(GetParam(), options);
  const auto generation = scene.begin(random_text(70, 4));
  scene.run({generation.get()});
  ASSERT_GE(scene.trees().size(), 6u);
  Backend& target = scene.target();
  Backend& head = *target.head();
  const BlockInput& block = *head.spec().block;
  for (const auto& [text, tree] : scene.trees()) {
    SCOPED_TRACE(fmt::format("text of {}", text.size()));
    const SequenceId sequence = head.begin({});
    const int anchor = static_cast<int>(text.size()) - 1;
    compute_text(target, sequence, std::span(text).first(anchor));
    const std::vector<Row> guessing = block_rows(
        block, {.sequence = sequence, .anchor = text.back(), .position = anchor}, block.n_rows);
    Pass said = head.forward(guessing);
    std::vector<Token> chain;
    Token before = text.back();
    std::vector<float> memory;
    for (int place = 0; place < 4; ++place) {
      int row = block.first_guess() + place;
      if (block.successor_rank > 0) {
        const Row completed{.sequence = sequence,
                            .token = before,
                            .position = anchor + place,
                            .wants_logits = true,
                            .before = BlockRow{row, memory}};
        ForwardOptions options;
        if (block.successors_remember) options.taps = {kMemoryTap};
        said = head.forward({&completed, 1}, options);
        row = 0;
        if (block.successors_remember) memory = head.read_tap(said, 0, 0);
      }
      const ChoiceRequest question{.row = row, .filters = {.temperature = 0}};
      before = *head.choose(said, {&question, 1})[0].token;
      chain.push_back(before);
    }
    std::vector<Token> proposed;
    for (const Drafted& node : tree) proposed.push_back(node.token);
    EXPECT_EQ(proposed, chain);
    head.end(sequence);
  }
}

INSTANTIATE_TEST_SUITE_P(, BlockHead,
                         ::testing::Values(Kind::dflash, Kind::dspark, Kind::dspark_with_memory),
                         test_name);

std::shared_ptr<Backend> load_block(const TinyBlockOptions& options, int batch_rows) {
  LoadOptions load;
  load.context = 256;
  load.batch_rows = batch_rows;
  load.cache_type = CacheType::f32;
  load.n_threads = 2;
  load.head = tiny_block_to_load(target_model(), options);
  return load_cpu(target_model(), load);
}

// Where nothing completes a row, its state alone says how sure it is.
TEST(Blocks, AreAsSureAsTheirStatesSay) {
  const TinyBlockOptions options{.has_confidence = true};
  const std::shared_ptr<Backend> target = load_block(options, 64);
  Backend& head = *target->head();
  const BlockInput& block = *head.spec().block;
  const auto numbers = [model = tiny_block_to_load(target_model(), options)->model](Role role) {
    const TensorView& tensor = *model.weight(role);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    dequantize(tensor.type, tensor.bytes, values);
    return values;
  };
  const std::vector<float> weights = numbers(Role::confidence);
  const OwnedSequence sequence(head);
  const std::vector<Token> text = random_text(21, 3);
  const int anchor = static_cast<int>(text.size()) - 1;
  compute_text(*target, sequence.id(), std::span(text).first(anchor));
  const std::vector<Row> rows = block_rows(
      block, {.sequence = sequence.id(), .anchor = text.back(), .position = anchor}, block.n_rows);
  const Pass pass = head.forward(rows, {.taps = {head.spec().n_layers()}});
  for (int row = block.first_guess(); row < block.n_rows; ++row) {
    const std::vector<float> state = head.read_tap(pass, 0, row);
    double sum = numbers(Role::confidence_bias)[0];
    for (std::size_t i = 0; i < state.size(); ++i) sum += double{weights[i]} * state[i];
    EXPECT_NEAR(head.read_confidence(pass, row).value(), 1 / (1 + std::exp(-sum)), 1e-5);
  }
}

// Few slots say of blocks what many do.
TEST(Blocks, AreMeasuredInFewSlots) {
  const std::vector<Token> text = random_text(70, 5);
  const int least = rows_to_measure(tiny_block_to_load(target_model())->model.spec);
  const auto measured = [&](int batch_rows) {
    return measure_agreement(*load_block({}, batch_rows), text, {});
  };
  const std::vector<bool> many = measured(256);
  EXPECT_EQ(many.size(), 2u * 17);  // anchors 4, 8, ..., 68
  for (const int few : {least, least + 3, 2 * least, 2 * least + 1})
    EXPECT_EQ(measured(few), many) << few;
}

// The answer grows beyond the ends of pages; an accepted path may hold one.
TEST_P(Head, ProposesOverTheEndsOfPages) {
  Scene scene(GetParam());
  const auto generation = scene.begin(random_text(58, 4), 80);
  scene.run({generation.get()});
  expect_fresh_trees(scene, 30);
}

TEST_P(Head, ProposesBehindCachedPages) {
  SceneOptions options;
  options.load.n_sequences = 2;
  options.load.n_pages = 24;
  options.load.shares_texts = true;
  Scene scene(GetParam(), options);
  std::vector<Token> prompt = random_text(140, 2);
  {
    const auto first = scene.begin(prompt);
    scene.run({first.get()});
  }
  scene.forget_trees();
  for (const int n_shared : {64, 128}) {
    std::vector<Token> other(prompt.begin(), prompt.begin() + n_shared);
    for (const Token token : random_text(20, 3 + n_shared)) other.push_back(token);
    const auto second = scene.begin(other);
    EXPECT_EQ(second->cached_tokens, n_shared);
    scene.run({second.get()});
  }
  expect_fresh_trees(scene, 12);
}

// Of so many positions a cut inside a page keeps so many: where the head goes on from the features
// of the last one, one row of the target is computed again.
int kept_by_a_cut(Kind kind, int length) {
  return !is_block(kind) && length % 64 != 0 ? length - 1 : length;
}

// In its own place or, where a fork shares the page, in another one.
TEST_P(Head, ProposesAfterACutInsideAPage) {
  for (const int kept : {100, 65, 64, 128, 129, 131}) {
    for (const bool is_shared : {false, true}) {
      SCOPED_TRACE(fmt::format("kept {} shared {}", kept, is_shared));
      SceneOptions options;
      options.load.n_sequences = 2;
      Scene scene(GetParam(), options);
      const std::vector<Token> text = random_text(150, 5);
      const auto generation = scene.begin(text);
      scene.run({generation.get()});
      scene.forget_trees();
      std::optional<SequenceId> fork;
      if (is_shared) fork = scene.target().fork(generation->sequence);
      std::vector<Token> prompt(text.begin(), text.begin() + kept);
      for (const Token token : random_text(9, 6)) prompt.push_back(token + 1);
      scene.engine().restart(*generation, prompt, Scene::greedy(), scene.stop(16));
      EXPECT_EQ(generation->cached_tokens, kept_by_a_cut(GetParam(), kept));
      scene.run({generation.get()});
      expect_fresh_trees(scene, 6);
      if (fork) scene.target().end(*fork);
    }
  }
}

// The second cut leaves what the first one has left, but the text goes on with another token.
TEST_P(Head, ProposesAfterTwoCutsToOneLength) {
  Scene scene(GetParam());
  std::vector<Token> text = random_text(150, 5);
  const auto generation = scene.begin(text);
  scene.run({generation.get()});
  scene.forget_trees();
  const auto restart = [&](int kept) {
    text.resize(static_cast<std::size_t>(kept));
    for (int i = 0; i < 8; ++i) text.push_back((text[static_cast<std::size_t>(i)] + 1) % 256);
    scene.engine().restart(*generation, text, Scene::greedy(), scene.stop(16));
  };
  restart(90);
  EXPECT_EQ(generation->cached_tokens, kept_by_a_cut(GetParam(), 90));
  restart(89);
  EXPECT_EQ(generation->cached_tokens, kept_by_a_cut(GetParam(), 89));
  scene.run({generation.get()});
  expect_fresh_trees(scene, 6);
}

// Confidences by path.
std::map<std::vector<Token>, float> by_path(const Tree& tree) {
  std::map<std::vector<Token>, float> found;
  std::vector<std::vector<Token>> paths{{}};
  for (const Drafted& node : tree) {
    paths.push_back(paths[static_cast<std::size_t>(node.parent)]);
    paths.back().push_back(node.token);
    found[paths.back()] = node.confidence;
  }
  return found;
}

// A second sequence with the history of the first goes on by itself.
TEST_P(Head, ProposesForAFork) {
  for (const int length : {90, 112}) {  // the answer ends inside a page, and at the end of one
    SCOPED_TRACE(length);
    SceneOptions options;
    options.load.n_sequences = 2;
    Scene scene(GetParam(), options);
    Backend& target = scene.target();
    const auto generation = scene.begin(random_text(length, 14), 17);
    scene.run({generation.get()});
    const SequenceId fork = target.fork(generation->sequence);
    const auto drafters = scene.drafters();
    Drafter& drafter = *drafters[0];
    drafter.begin({0});
    drafter.bind({0}, fork);

    std::vector<Token> text = generation->tokens;
    const int first = target.committed(fork);
    ASSERT_EQ(first, std::ssize(text) - 1);
    const Row row{.sequence = fork, .token = text.back(), .position = first, .wants_logits = true};
    const Pass pass = target.forward({&row, 1});
    const ChoiceRequest greedy{.row = 0, .filters = {.temperature = 0}};
    const Token next = target.choose(pass, {&greedy, 1}).at(0).token.value();
    const int rows[] = {0};
    const ComputedText computed{.sequence = {0},
                                .first = first,
                                .tokens = std::span(text).last(1),
                                .rows = rows,
                                .next = next};
    drafter.computed(pass, {&computed, 1});
    target.commit(fork, pass.slots);
    text.push_back(next);
    drafter.observe({0}, text);

    DraftTree proposed(next);
    const SamplingParams sampling = Scene::greedy();
    const ChoiceState state(sampling);
    const DraftRequest request{.sequence = {0},
                               .tree = &proposed,
                               .drafter = 0,
                               .limits = {.nodes = 8, .depth = 3, .width = 3},
                               .sampling = &sampling,
                               .state = &state};
    drafter.propose({&request, 1});
    Tree tree;
    for (int node = 1; node < proposed.size(); ++node)
      tree.push_back(
          {proposed[node].token, proposed[node].parent, proposed[node].proposals[0].confidence});
    EXPECT_EQ(by_path(tree), by_path(fresh_tree(text)));
    drafter.end({0});
    target.end(fork);
  }
}

TEST_P(Head, ProposesAfterTwoCuts) {
  Scene scene(GetParam());
  const std::vector<Token> text = random_text(150, 5);
  const auto generation = scene.begin(text);
  scene.run({generation.get()});
  scene.forget_trees();
  for (const int kept : {120, 90})
    scene.engine().restart(*generation, std::span(text).first(kept + 1), Scene::greedy(),
                           scene.stop(16));
  EXPECT_EQ(generation->cached_tokens, kept_by_a_cut(GetParam(), 90));
  scene.run({generation.get()});
  expect_fresh_trees(scene, 6);
}

TEST_P(Head, ProposesAfterAPreemption) {
  Scene scene(GetParam());
  const auto generation = scene.begin(random_text(90, 7), 24);
  for (int step = 0; !generation->ended(); ++step) {
    if (step == 3 || step == 9) scene.engine().suspend(*generation);
    scene.engine().step(std::vector{generation.get()});
  }
  expect_fresh_trees(scene, 8);
}

TEST_P(Head, ProposesForTextsThatSharePasses) {
  SceneOptions options;
  options.load.n_sequences = 3;
  options.engine.prompt_chunk = 40;
  Scene scene(GetParam(), options);
  const auto a = scene.begin(random_text(30, 8)), b = scene.begin(random_text(127, 9), 24),
             c = scene.begin(random_text(64, 10));
  scene.run({a.get(), b.get(), c.get()});
  expect_fresh_trees(scene, 18);
}

// A pass that fills all slots leaves none for the text's last token.
TEST_P(Head, ProposesWithFewSlots) {
  SceneOptions options;
  options.load.n_slots = 16;
  options.engine.planner.rows = 15;
  options.engine.planner.width = 4;
  options.engine.planner.depth = 4;
  Scene scene(GetParam(), options);
  const auto generation = scene.begin(random_text(70, 11), 24);
  scene.run({generation.get()});
  expect_fresh_trees(scene, 8, {.load = {}, .engine = options.engine});
}

// A conversation may go on with other drafters and come back to the head.
TEST_P(Head, ProposesAfterOtherDrafters) {
  Scene scene(GetParam());
  const std::vector<Token> prompt = random_text(90, 12);
  const auto generation = scene.begin(prompt);
  scene.run({generation.get()});
  scene.engine().set_drafters({});
  scene.engine().restart(*generation, prompt, Scene::greedy(), scene.stop(8));
  scene.run({generation.get()});
  scene.engine().set_drafters(scene.drafters());
  scene.forget_trees();
  scene.engine().restart(*generation, prompt, Scene::greedy(), scene.stop(16));
  scene.run({generation.get()});
  expect_fresh_trees(scene, 6);
}

// With classic verification answers have the distribution that the target has by itself, whatever
// the head draws.
TEST_P(Head, DrawsGiveTheTargetsDistribution) {
  constexpr int kSamples = 8000, kTokens = 4;
  constexpr double kFalseAlarm = 1e-8;
  SceneOptions options;
  options.load.n_sequences = 2;
  options.engine.planner.rows = 12;
  Scene scene(GetParam(), options);
  SamplingParams sampling;
  sampling.filters = {
      .top_k = 0, .top_p = 1, .min_p = 0, .temperature = 8};  // so hot that the model is unsure
  for (Token token = 4; token < kVocabulary; ++token)
    sampling.bias.push_back({token, -std::numeric_limits<float>::infinity()});
  const std::vector<Token> prompt = random_text(20, 13);

  using Answer = std::vector<Token>;
  std::map<Answer, double> expected{{{}, 1}};
  const OwnedSequence plain(scene.target());
  for (int i = 0; i < kTokens; ++i) {
    std::map<Answer, double> longer;
    for (const auto& [answer, chance] : expected) {
      std::vector<Token> text = prompt;
      text.insert(text.end(), answer.begin(), answer.end());
      std::vector<Row> rows;
      for (int at = 0; at < std::ssize(text); ++at)
        rows.push_back({.sequence = plain.id(),
                        .token = text[at],
                        .position = at,
                        .parent = at == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{at - 1}},
                        .wants_logits = at + 1 == std::ssize(text)});
      const Pass pass = scene.target().forward(rows);
      ChoiceRequest request = choice_request(sampling, {}, static_cast<int>(rows.size()) - 1,
                                             static_cast<int>(text.size()));
      request.wants_probabilities = true;
      const std::vector<Choice> choices = scene.target().choose(pass, {&request, 1});
      for (const auto& [token, probability] : choices[0].probabilities) {
        Answer next = answer;
        next.push_back(token);
        longer[next] = chance * probability;
      }
      scene.target().discard(plain.id());
    }
    expected = std::move(longer);
  }

  std::map<Answer, int> found;
  long n_accepted = 0;
  for (int i = 0; i < kSamples; ++i) {
    sampling.seed = static_cast<std::uint64_t>(i);
    const auto generation = scene.engine().begin(prompt, sampling, scene.stop(kTokens),
                                                 {.verifier = rejection_verifier()});
    scene.watch(*generation);
    scene.run({generation.get()});
    ASSERT_FALSE(generation->error);
    n_accepted += generation->counters.accepted;
    ++found[{generation->tokens.begin() + std::ssize(prompt), generation->tokens.end()}];
  }
  double statistic = 0;  // Pearson's
  for (const auto& [answer, chance] : expected) {
    const double wanted = chance * kSamples, n = found[answer];
    statistic += (n - wanted) * (n - wanted) / wanted;
  }
  EXPECT_EQ(found.size(), expected.size());
  EXPECT_GT(boost::math::gamma_q(static_cast<double>(expected.size() - 1) / 2, statistic / 2),
            kFalseAlarm);
  EXPECT_GT(n_accepted, kSamples / 10);
}

INSTANTIATE_TEST_SUITE_P(, Head,
                         ::testing::Values(Kind::eagle, Kind::eagle_with_normed_state, Kind::eagle1,
                                           Kind::mtp, Kind::dflash, Kind::dspark,
                                           Kind::dspark_with_memory, Kind::medusa),
                         test_name);

}  // namespace
}  // namespace outrider::testing

// Searches the layers that a model leaves out when it drafts for itself.

#include <algorithm>
#include <array>

#include "cli/generate.h"
#include "cli/json.h"
#include "cli/signals.h"
#include "cli/spread.h"
#include "cli/text_input.h"
#include "speculation/drafters/self.h"
#include "speculation/layer_search.h"

namespace outrider {
namespace {

constexpr int kTunePredict = 48;
// Sets that are tried together share what all layers compute for them.
constexpr int kSetsAtOnce = 8;
constexpr int kSearchRounds = 12;
// Of the best sets, answers are timed in turn with answers without drafts.
constexpr std::size_t kTimedSets = 3;
constexpr int kTimedRounds = 3;
constexpr std::uint64_t kSeed = 1;

constexpr std::array kTunePrompts{
    "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
    "Explain in a few sentences why the sky is blue.",
    "A shop sells pens at 3 for 2 euros. How much do 18 pens cost? Think step by step.",
    "Translate into French: The train to Paris leaves at nine and arrives at noon."};

struct TimedSet {
  std::vector<int> left_out;
  std::vector<double> speeds;  // over plain decoding in the same turn
};

int tune_self(const Machine& machine, const Settings& given) {
  Settings settings = given;
  settings.filters.temperature = 0;
  Console console(settings);
  std::vector<std::string> prompts(kTunePrompts.begin(), kTunePrompts.end());
  if (settings.prompts_file) {
    prompts.clear();
    for (const BenchPrompt& prompt :
         parse_prompts(read_text(*settings.prompts_file), *settings.prompts_file))
      prompts.push_back(prompt.turns[0]);
  }
  const DraftSetting off{.text = "off", .choices = {}};
  Workbench bench(machine, settings, {}, console, {.n_sequences = 2});
  const auto plain = bench.make_engine(off);

  std::vector<LayerSearch::Answer> answers;
  std::vector<std::string> answered;  // prompts whose answers have a token after their first
  const auto answer = [&](Engine& engine, const DraftSetting& draft, const std::string& prompt) {
    engine.forget_ended_sequences();
    Session session = bench.open_session(engine);
    const std::vector<Token> tokens = bench.prompt_tokens(session, prompt);
    session.begin(bench.request(tokens, draft, kTunePredict));
    while (session.step()) stop_if_interrupted();
    return std::pair(tokens, session.finish());
  };
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    console.advance("answering", static_cast<double>(i) / static_cast<double>(prompts.size()));
    auto [tokens, completion] = answer(*plain, off, prompts[i]);
    if (completion.tokens.size() < 2) continue;
    answered.push_back(prompts[i]);
    const int n_prompt = static_cast<int>(tokens.size());
    tokens.insert(tokens.end(), completion.tokens.begin(), completion.tokens.end());
    answers.push_back({std::move(tokens), n_prompt});
  }
  if (answers.empty()) throw Error("no answer has two tokens: give other prompts");

  LayerSearch search(bench.target(), std::move(answers), kSeed);
  for (int round = 0; round < kSearchRounds; ++round) {
    const std::string best =
        round == 0 ? ""
                   : fmt::format("best so far {:.2f}x, without {}", search.best().speed,
                                 layers_text(search.best().left_out));
    console.advance("searching", static_cast<double>(round) / kSearchRounds, best);
    search.try_sets(kSetsAtOnce, stop_if_interrupted);
  }

  std::vector<TimedSet> timed;
  std::vector<std::unique_ptr<Engine>> engines;
  for (const LayerSearch::Candidate& candidate :
       search.tried().first(std::min(kTimedSets, search.tried().size()))) {
    timed.push_back({candidate.left_out, {}});
    const DraftSetting draft =
        parse_draft_setting("self=" + layers_text(candidate.left_out), settings);
    engines.push_back(bench.make_engine(
        draft,
        {.automatic = false, .rows = candidate.depth, .depth = candidate.depth, .width = 1}));
  }
  for (int round = 0; round < kTimedRounds; ++round)
    for (const std::string& prompt : answered) {
      console.advance("timing", static_cast<double>(round) / kTimedRounds);
      const double plain_speed = answer(*plain, off, prompt).second.tokens_per_second();
      for (std::size_t set = 0; set < timed.size(); ++set) {
        const double speed = answer(*engines[set], off, prompt).second.tokens_per_second();
        timed[set].speeds.push_back(speed / plain_speed);
      }
    }
  console.clear();
  const TimedSet& best = *std::ranges::max_element(
      timed, {}, [](const TimedSet& set) { return spread(set.speeds).median; });
  const Spread speed = spread(best.speeds);
  const bool is_kept = bench.keep_self_layers(best.left_out, speed.median);

  const auto candidate =
      std::ranges::find(search.tried(), best.left_out, &LayerSearch::Candidate::left_out);
  if (settings.json) {
    write_json({{"model", bench.model().name},
                {"left_out", best.left_out},
                {"layers", bench.target().spec().n_layers()},
                {"sets_tried", search.tried().size()},
                {"acceptance", candidate->acceptance},
                {"speed", speed.median},
                {"kept", is_kept}});
  } else {
    write_output(fmt::format(
        "{}: of {} sets of layers, leaving out {} is best: {:.0f}% of its next tokens are right, "
        "and answers come {:.2f} times as fast as without drafts (median, {:.2f} to {:.2f})\n{}",
        bench.model().name, search.tried().size(), layers_text(best.left_out),
        100 * candidate->acceptance, speed.median, speed.min, speed.max,
        is_kept ? "--draft self uses it from now on\n" : ""));
  }
  return kDone;
}

}  // namespace

Command tune_self_command() {
  return {
      .name = "tune self",
      .summary = "search the layers that a model leaves out when it drafts for itself",
      .description =
          "Tries sets of layers on answers of the model to some prompts, measures the best ones "
          "by the speed of answers, and keeps the best one in the profile, for --draft self. "
          "Takes a minute or a few.",
      .flag_set = FlagSet::loading,
      .flags = {"--prompts"},
      .run = tune_self};
}

}  // namespace outrider

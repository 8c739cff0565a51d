#include "cli/measure_answers.h"

#include <algorithm>
#include <map>

#include "cli/signals.h"
#include "speculation/time_pass.h"

namespace outrider {
namespace {

constexpr int kBenchPredict = 256;
constexpr std::size_t kPassRounds = 5;  // T(n) is measured so often, spread over the answers

// One --draft on one prompt.
struct Answering {
  Session session;
  std::vector<Message> messages;   // so far
  std::string raw;                 // the same as a text
  std::vector<Token> tokens = {};  // of all answers
  AnswerTotals totals = {};

  void begin(const Workbench& bench, const DraftSetting& draft, const std::string& turn,
             const std::string& prediction);
  void finish();
};

void Answering::begin(const Workbench& bench, const DraftSetting& draft, const std::string& turn,
                      const std::string& prediction) {
  std::vector<Token> prompt;
  if (bench.uses_template()) {
    messages.push_back({"user", turn});
    prompt = session.tokens_of(messages);
  } else {
    raw += turn;
    prompt = bench.prompt_tokens(session, raw);
  }
  session.begin(bench.request(std::move(prompt), draft, kBenchPredict, prediction));
}

void Answering::finish() {
  const Completion completion = session.finish();
  tokens.insert(tokens.end(), completion.tokens.begin(), completion.tokens.end());
  totals += totals_of(completion);
  messages.push_back({"assistant", completion.text});
  raw += completion.text;
}

// One prompt with every --draft. They take turns step by step, next always the one whose text is
// shortest, so that a slow moment of the machine meets all at the same tokens. `first` begins.
std::vector<Answering> answer(const Workbench& bench, std::span<const DraftSetting> drafts,
                              std::span<const std::unique_ptr<Engine>> engines,
                              const BenchPrompt& prompt, std::size_t first) {
  std::vector<Answering> all;
  for (const auto& engine : engines)
    all.push_back(
        {.session = bench.open_session(*engine), .messages = bench.conversation(), .raw = {}});
  for (const std::string& turn : prompt.turns) {
    std::vector<Answering*> unfinished;
    for (std::size_t i = 0; i < all.size(); ++i)
      unfinished.push_back(&all[(first + i) % all.size()]);
    for (Answering* each : unfinished)
      each->begin(bench, drafts[each - all.data()], turn, prompt.prediction);
    while (!unfinished.empty()) {
      const auto next = std::ranges::min_element(
          unfinished, {}, [](const Answering* each) { return each->session.n_computed(); });
      const bool goes_on = (*next)->session.step();
      stop_if_interrupted();
      if (goes_on) continue;
      (*next)->finish();
      unfinished.erase(next);
    }
  }
  return all;
}

void time_passes(Backend& target, int rows_max, std::map<int, std::vector<double>>& passes) {
  const OwnedSequence sequence(target);
  time_pass(target, sequence.id(), 1, 1);  // what ran before has evicted the weights
  for (const int rows : timed_rows(rows_max)) {
    passes[rows].push_back(time_pass(target, sequence.id(), rows, rows));
    stop_if_interrupted();
  }
}

}  // namespace

GenerateMeasurements measure_answers(Workbench& bench, const Settings& settings,
                                     std::span<const DraftSetting> drafts,
                                     std::span<const BenchPrompt> prompts, Console& console) {
  std::vector<std::unique_ptr<Engine>> engines;
  for (const DraftSetting& draft : drafts) engines.push_back(bench.make_engine(draft));

  GenerateMeasurements measured{.model = bench.model().name,
                                .n_threads = bench.n_threads(),
                                .seed = bench.seed(),
                                .drafts = {},
                                .keeps_learned = settings.keep_learned,
                                .reads_profiles = settings.stored_profile,
                                .prompts = {},
                                .passes = {}};
  for (const DraftSetting& draft : drafts) measured.drafts.push_back(draft.text);
  const LoadOptions& loaded = bench.target().options();
  const int rows_max =
      std::min({1 + settings.draft_rows, loaded.batch_rows, loaded.n_slots, loaded.context});
  const std::size_t total = prompts.size() * static_cast<std::size_t>(settings.repetitions);
  std::size_t n_timed = 0;
  for (std::size_t i = 0; i < total; ++i) {
    for (; n_timed * total <= i * kPassRounds && n_timed < kPassRounds; ++n_timed)
      time_passes(bench.target(), rows_max, measured.passes);
    const BenchPrompt& prompt = prompts[i % prompts.size()];
    console.advance(fmt::format("{} {}", prompt.group, prompt.id),
                    static_cast<double>(i) / static_cast<double>(total));
    if (!settings.keep_learned)
      for (const auto& engine : engines) engine->forget_ended_sequences();
    const std::vector<Answering> answers =
        answer(bench, drafts, engines, prompt, i % engines.size());
    MeasuredPrompt& answered = measured.prompts.emplace_back(
        MeasuredPrompt{.id = prompt.id,
                       .group = prompt.group,
                       .prompt = i % prompts.size(),
                       .round = static_cast<int>(i / prompts.size()) + 1,
                       .answers = {}});
    for (const Answering& each : answers)
      answered.answers.push_back({each.totals, each.tokens == answers[0].tokens});
  }
  for (; n_timed < kPassRounds; ++n_timed) time_passes(bench.target(), rows_max, measured.passes);
  console.clear();
  return measured;
}

}  // namespace outrider

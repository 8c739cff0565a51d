#include "cli/certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/special_functions/gamma.hpp>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "base/error.h"
#include "cli/generate.h"
#include "cli/signals.h"
#include "speculation/verifier.h"

namespace outrider {
namespace {

constexpr int kSequences = 8;  // at once
constexpr int kContext = 1024;
constexpr int kTokens = 32, kTokensInFull = 128;  // of an answer
// Plain code takes a second for each hundred tokens of the smallest models.
constexpr int kTokensInPlainCode = 8;
const std::string kPlainCode = "reference";
// A check that is right fails once in 10^6 certificates of some ten such checks.
constexpr double kFalseAlarm = 1e-7;
constexpr int kSamples = 1500, kSamplesInFull = 6000;

const char* const kPrompts[] = {
    "Say the word river four times.",
    // Longer than a page, and an answer to it repeats it.
    "Rename the variable total to sum in this Python function. Answer with the whole function "
    "only.\n\ndef average(values):\n    total = 0\n    count = 0\n    for value in values:\n"
    "        if value is None:\n            continue\n        total = total + value\n"
    "        count = count + 1\n    if count == 0:\n        return None\n"
    "    return total / count\n",
    "Explain in two sentences why the sky is blue.",
};

struct Transcript {
  std::vector<Token> tokens;
  std::vector<std::uint64_t> fingerprints;  // of the logits
};

// Settings of its own, and what was loaded for them.
struct Bench {
  Bench(const Machine& machine, Settings changed, const std::vector<std::string>& draft_texts,
        Console& console)
      : settings(std::move(changed)) {
    settings.draft = draft_texts;
    drafts = parse_draft_settings(settings, {});
    workbench.emplace(machine, settings, drafts, console,
                      WorkbenchOptions{.n_sequences = kSequences, .pool = RuntimeOptions::Pool{}});
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  std::unique_ptr<Engine> engine(const DraftSetting& draft, const PlannerOptions& planner) {
    return workbench->make_engine(draft, planner);
  }
  const Tokenizer& tokenizer() const { return workbench->tokenizer(); }

  Settings settings;
  std::vector<DraftSetting> drafts;
  std::optional<Workbench> workbench;
};

// By the environment, which loading looks at; as it was at the end.
class ForcedInstructionSet {
 public:
  explicit ForcedInstructionSet(const std::string& name) {
    if (const char* const value = std::getenv(kVariable)) before_ = value;
    setenv(kVariable, name.c_str(), 1);
  }
  ~ForcedInstructionSet() {
    if (before_)
      setenv(kVariable, before_->c_str(), 1);
    else
      unsetenv(kVariable);
  }
  ForcedInstructionSet(const ForcedInstructionSet&) = delete;
  ForcedInstructionSet& operator=(const ForcedInstructionSet&) = delete;

 private:
  static constexpr const char* kVariable = "OUTRIDER_ISA";
  std::optional<std::string> before_;
};

constexpr PlannerOptions kFixed{.automatic = false, .rows = 16, .depth = 8, .width = 2};
const DraftSetting kNoDraft{.text = "off", .choices = {}};

class Certificate {
 public:
  Certificate(const Machine& machine, const Settings& settings, Console& console)
      : machine_(machine),
        settings_(settings),
        console_(console),
        n_tokens_(settings.full ? kTokensInFull : kTokens) {
    if (!settings_.ctx_size) settings_.ctx_size = kContext;
    if (!settings_.seed) settings_.seed = 1;
    const std::string model = "model=" + settings.model_draft.value_or(settings.model);
    drafts_ = settings.draft;
    if (drafts_.empty())
      drafts_ = {"lookup",
                 "prediction",
                 "lookahead",
                 "self",
                 model,
                 "lookup+" + model,
                 "lookup+prediction+lookahead+self+" + model};
  }

  std::vector<CertificateCheck> coupled();
  std::vector<CertificateCheck> rejection();

 private:
  using Change = std::function<void(Settings&)>;
  std::unique_ptr<Bench> bench(const Change& change = nullptr) const {
    Settings settings = settings_;
    if (change) change(settings);
    return std::make_unique<Bench>(machine_, std::move(settings), drafts_, console_);
  }
  std::vector<Request> requests(Bench& bench, bool predicts) const;
  void add(CertificateCheck check) {
    constexpr double kUsual = 20;  // checks
    console_.advance(check.what, std::min(1.0, static_cast<double>(checks_.size()) / kUsual));
    checks_.push_back(std::move(check));
  }
  void compare_on_one_bench();
  // Answers to the requests, one after another or all at once, are plain decoding's.
  using BeforeStep = std::function<void(Engine&, Generation&)>;
  void compare(const std::string& what, Engine& engine, const Tokenizer& tokenizer,
               std::span<const Request> requests, const BeforeStep& before_step = nullptr);
  void compare_together(const std::string& what, Engine& engine, const Tokenizer& tokenizer,
                        std::span<const Request> requests);
  void add_comparison(const std::string& what, std::span<const Transcript> found, int n_wanted,
                      long accepted);
  const Machine& machine_;
  Settings settings_;
  Console& console_;
  const int n_tokens_;
  std::vector<std::string> drafts_;
  std::vector<Transcript> plain_;  // of each request
  std::vector<CertificateCheck> checks_;
};

// Greedy and sampled ones for each prompt.
std::vector<Request> Certificate::requests(Bench& bench, bool predicts) const {
  const Workbench& workbench = *bench.workbench;
  const std::unique_ptr<Engine> engine = bench.engine(kNoDraft, kFixed);
  const Session session = workbench.open_session(*engine);
  std::vector<Request> requests;
  for (const bool is_sampled : {false, true})
    for (const char* const prompt : kPrompts) {
      Request request{.prompt = workbench.prompt_tokens(session, prompt),
                      .sampling = workbench.sampling()};
      Filters& filters = request.sampling.filters;
      if (!is_sampled)
        filters.temperature = 0;
      else if (filters.temperature <= 0)
        filters.temperature = Filters{}.temperature;
      request.stop = {.n_predict = n_tokens_, .texts = {}, .ignore_eos = true};
      request.options.fingerprints = true;
      // The plain answer, but for a token in the middle.
      if (predicts && requests.size() < plain_.size()) {
        request.options.prediction = plain_[requests.size()].tokens;
        request.options.prediction[request.options.prediction.size() / 2] ^= 1;
      }
      requests.push_back(std::move(request));
    }
  return requests;
}

std::unique_ptr<Generation> begin(Engine& engine, const Tokenizer& tokenizer,
                                  const Request& request) {
  return engine.begin(request.prompt, sampling_of(request, tokenizer),
                      StopRules(tokenizer, request.stop), request.options);
}

void take(Generation& generation, Transcript& transcript) {
  if (generation.error) throw Error(*generation.error);
  for (const Emitted& emitted : generation.emitted) {
    transcript.tokens.push_back(emitted.token);
    transcript.fingerprints.push_back(emitted.fingerprint);
  }
}

Transcript answer(Engine& engine, const Tokenizer& tokenizer, const Request& request,
                  const std::function<void(Engine&, Generation&)>& before_step, long& accepted) {
  Transcript transcript;
  const auto generation = begin(engine, tokenizer, request);
  while (!generation->ended()) {
    stop_if_interrupted();
    if (before_step) before_step(engine, *generation);
    Generation* const all[] = {generation.get()};
    engine.step(all);
    take(*generation, transcript);
  }
  accepted += generation->counters.accepted;
  return transcript;
}

void Certificate::compare(const std::string& what, Engine& engine, const Tokenizer& tokenizer,
                          std::span<const Request> requests, const BeforeStep& before_step) {
  std::vector<Transcript> found;
  long accepted = 0;
  for (const Request& request : requests)
    found.push_back(answer(engine, tokenizer, request, before_step, accepted));
  add_comparison(what, found, requests[0].stop.n_predict, accepted);
}

void Certificate::compare_together(const std::string& what, Engine& engine,
                                   const Tokenizer& tokenizer, std::span<const Request> requests) {
  std::vector<std::unique_ptr<Generation>> generations;
  std::vector<Transcript> found(requests.size());
  for (const Request& request : requests) generations.push_back(begin(engine, tokenizer, request));
  for (;;) {
    stop_if_interrupted();
    std::vector<Generation*> alive;
    for (const auto& generation : generations)
      if (!generation->ended()) alive.push_back(generation.get());
    if (alive.empty()) break;
    engine.step(alive);
    for (std::size_t i = 0; i < generations.size(); ++i)
      if (std::ranges::count(alive, generations[i].get()) > 0) take(*generations[i], found[i]);
  }
  long accepted = 0;
  for (const auto& generation : generations) accepted += generation->counters.accepted;
  add_comparison(what, found, requests[0].stop.n_predict, accepted);
}

// Shorter answers are compared with the beginning of the plain ones.
void Certificate::add_comparison(const std::string& what, std::span<const Transcript> found,
                                 int n_wanted, long accepted) {
  CertificateCheck check{.what = what, .passed = true, .result = "identical", .accepted = accepted};
  for (std::size_t i = 0; i < found.size() && check.passed; ++i) {
    const Transcript &plain = plain_[i], &other = found[i];
    const auto n = std::min(plain.tokens.size(), static_cast<std::size_t>(n_wanted));
    check.passed = other.tokens.size() == n;
    if (!check.passed) check.result = fmt::format("DIFFERENT length of answer {}", i + 1);
    for (std::size_t at = 0; at < other.tokens.size() && check.passed; ++at, ++check.tokens) {
      const bool same_token = other.tokens[at] == plain.tokens[at];
      check.passed = same_token && other.fingerprints[at] == plain.fingerprints[at];
      if (!check.passed)
        check.result = fmt::format("DIFFERENT {} at token {} of answer {}",
                                   same_token ? "logits" : "token", at, i + 1);
    }
  }
  add(std::move(check));
}

std::vector<CertificateCheck> Certificate::coupled() {
  compare_on_one_bench();
  const auto elsewhere = [&](const std::string& what, int n_tokens, const Change& change) {
    const auto bench = this->bench(change);
    std::vector<Request> requests = this->requests(*bench, /*predicts=*/true);
    for (Request& request : requests) request.stop.n_predict = std::min(n_tokens, n_tokens_);
    const bool is_slow = n_tokens < n_tokens_;
    compare(what, *bench->engine(bench->drafts[is_slow ? 0 : bench->drafts.size() - 1], kFixed),
            bench->tokenizer(), std::span(requests).first(is_slow ? 1 : requests.size()));
  };
  for (const int n_threads : {1, 3})
    elsewhere(fmt::format("{} thread{}", n_threads, n_threads == 1 ? "" : "s"), n_tokens_,
              [=](Settings& settings) { settings.threads = n_threads; });
  for (const std::string& name : machine_.instruction_sets) {
    const ForcedInstructionSet forced(name);
    elsewhere("instructions of " + name, name == kPlainCode ? kTokensInPlainCode : n_tokens_, {});
  }
  return std::move(checks_);
}

void Certificate::compare_on_one_bench() {
  const auto bench = this->bench();
  const Tokenizer& tokenizer = bench->tokenizer();
  long accepted = 0;
  const auto plain_engine = bench->engine(kNoDraft, kFixed);
  for (const Request& request : requests(*bench, /*predicts=*/false))
    plain_.push_back(answer(*plain_engine, tokenizer, request, nullptr, accepted));

  const std::vector<Request> requests = this->requests(*bench, /*predicts=*/true);
  for (const DraftSetting& draft : bench->drafts)
    compare("--draft " + draft.text, *bench->engine(draft, kFixed), tokenizer, requests);
  const DraftSetting& mix = bench->drafts.back();
  const PlannerOptions sizes[] = {{.automatic = false, .rows = 1, .depth = 1, .width = 1},
                                  {.automatic = false, .rows = 4, .depth = 4, .width = 1},
                                  {.automatic = false, .rows = 12, .depth = 3, .width = 4},
                                  {.automatic = false, .rows = 64, .depth = 16, .width = 8}};
  for (const PlannerOptions& size : sizes)
    compare(fmt::format("trees of {} nodes, {} levels, {} wide", size.rows, size.depth, size.width),
            *bench->engine(mix, size), tokenizer, requests);
  const auto engine = bench->engine(mix, kFixed);
  compare_together("six answers at once", *engine, tokenizer, requests);
  compare_together("six, as the planner drafts", *bench->engine(mix, {}), tokenizer, requests);
  compare("preempted every eight tokens", *engine, tokenizer, requests,
          [last = std::size_t{0}](Engine& preempting, Generation& generation) mutable {
            if (generation.tokens.size() / 8 == last) return;
            last = generation.tokens.size() / 8;
            preempting.suspend(generation);
          });
  long cached = 0;
  compare("prompts found in the cache", *engine, tokenizer, requests,
          [&](Engine& finding, Generation& generation) {
            if (std::ssize(generation.tokens) == generation.n_prompt)
              cached += generation.n_prompt - 1 - finding.n_to_prefill(generation);
          });
  CertificateCheck& found = checks_.back();
  found.result += fmt::format(", {} tokens found", cached);
  found.passed = found.passed && cached > 0;
}

// Of the tokens that follow a text, in the order of ids.
Distribution probabilities_after(Backend& target, const SamplingParams& sampling,
                                 std::span<const Token> text) {
  const OwnedSequence sequence(target);
  const auto batch =
      static_cast<std::size_t>(std::min(target.options().batch_rows, target.options().n_slots));
  Pass pass;
  std::size_t n_rows = 0;
  for (std::size_t first = 0; first < text.size(); first += n_rows) {
    n_rows = std::min(batch, text.size() - first);
    std::vector<Row> rows;
    for (std::size_t i = 0; i < n_rows; ++i)
      rows.push_back(
          {.sequence = sequence.id(),
           .token = text[first + i],
           .position = static_cast<int>(first + i),
           .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{static_cast<int>(i) - 1}},
           .wants_logits = first + i + 1 == text.size()});
    pass = target.forward(rows);
    if (first + n_rows < text.size()) target.commit(sequence.id(), pass.slots);
  }
  ChoiceRequest request =
      choice_request(sampling, {}, static_cast<int>(n_rows) - 1, static_cast<int>(text.size()));
  request.wants_probabilities = true;
  Choice choice = target.choose(pass, {&request, 1})[0];
  if (!choice.token) throw Error("the model gave no usable logits; the file may be damaged");
  return choice.probabilities;
}

// A wrong rule that the chi-square has to find: every proposal stands.
class TooEager final : public Verifier {
 public:
  std::string_view name() const override { return "too eager"; }
  Guarantee guarantee() const override { return Guarantee::lossy; }
  bool wants_draws() const override { return true; }
  bool wants_probabilities(const DraftTree& tree, int node) const override {
    return rejection_verifier()->wants_probabilities(tree, node);
  }
  Verdict verify(const DraftTree& tree, std::span<const NodeAnswer> answers,
                 const Chance& chance) const override {
    return rejection_verifier()->verify(tree, answers, Eager(chance));
  }

 private:
  class Eager final : public Chance {
   public:
    explicit Eager(const Chance& chance) : chance_(chance) {}
    bool accepts(int node, double probability) const override {
      return chance_.accepts(node, probability > 0 ? 1 : 0);
    }
    std::size_t pick(int node, std::span<const double> weights) const override {
      return chance_.pick(node, weights);
    }

   private:
    const Chance& chance_;
  };
};

using AnswerChances = std::map<std::vector<Token>, double>;

// The target's own joint distribution of the first tokens of answers, from plain passes.
AnswerChances exact_chances(Backend& target, const Request& request) {
  AnswerChances answers{{{}, 1}};
  for (int i = 0; i < request.stop.n_predict; ++i) {
    AnswerChances longer;
    for (const auto& [answer, chance] : answers) {
      stop_if_interrupted();
      std::vector<Token> text = request.prompt;
      text.insert(text.end(), answer.begin(), answer.end());
      for (const auto& [token, p] : probabilities_after(target, request.sampling, text)) {
        std::vector<Token> next = answer;
        next.push_back(token);
        longer[next] += chance * p;
      }
    }
    answers = std::move(longer);
  }
  return answers;
}

// Pearson's test. Answers that are expected less than five times count together, and not at all if
// all of them are expected less often.
double p_value(const AnswerChances& expected, const std::map<std::vector<Token>, int>& found,
               int n_samples) {
  constexpr double kLeastExpected = 5;
  double statistic = 0, rare = 0;
  int n_cells = 0, n_rare = 0, n_seen = 0;
  const auto add = [&](double wanted, int n) {
    statistic += (n - wanted) * (n - wanted) / wanted;
    ++n_cells;
  };
  for (const auto& [answer, chance] : expected) {
    const auto seen = found.find(answer);
    const int n = seen == found.end() ? 0 : seen->second;
    n_seen += n;
    if (chance * n_samples >= kLeastExpected) {
      add(chance * n_samples, n);
    } else {
      rare += chance * n_samples;
      n_rare += n;
    }
  }
  if (n_seen < n_samples) return 0;  // what cannot follow has followed
  if (rare >= kLeastExpected) add(rare, n_rare);
  return n_cells > 1 ? boost::math::gamma_q((n_cells - 1) / 2.0, statistic / 2) : 1;
}

std::vector<CertificateCheck> Certificate::rejection() {
  const auto bench = this->bench();
  const Tokenizer& tokenizer = bench->tokenizer();
  std::vector<Request> greedy = requests(*bench, /*predicts=*/false);
  greedy.resize(greedy.size() / 2);
  long accepted = 0;
  const auto plain_engine = bench->engine(kNoDraft, kFixed);
  for (const Request& request : greedy)
    plain_.push_back(answer(*plain_engine, tokenizer, request, nullptr, accepted));
  for (Request& request : greedy) request.options.verifier = rejection_verifier();
  compare("temperature 0 is plain decoding", *bench->engine(bench->drafts.back(), kFixed),
          tokenizer, greedy);

  Request request = greedy.back();
  request.options.fingerprints = false;
  request.options.prediction = plain_.back().tokens;  // what is likely, so often right
  request.sampling = {};
  request.sampling.filters = {.top_k = 3, .top_p = 1, .min_p = 0, .temperature = 1};
  request.stop = {.n_predict = 4, .texts = {}, .ignore_eos = true};
  request.sampling = sampling_of(request, tokenizer);
  const AnswerChances expected = exact_chances(bench->workbench->target(), request);
  const auto check = [&](const std::string& what, const DraftSetting& draft, int width,
                         std::shared_ptr<const Verifier> verifier) {
    request.options.verifier = std::move(verifier);
    const auto engine =
        bench->engine(draft, {.automatic = false, .rows = 4 * width, .depth = 3, .width = width});
    const int n_samples = settings_.full ? kSamplesInFull : kSamples;
    std::map<std::vector<Token>, int> found;
    std::unique_ptr<Generation> generation;
    CertificateCheck result{.what = what, .passed = false, .result = {}};
    for (int i = 0; i < n_samples; ++i) {
      stop_if_interrupted();
      request.sampling.seed = *settings_.seed + static_cast<std::uint64_t>(i);
      StopRules rules(tokenizer, request.stop);
      if (generation)
        engine->restart(*generation, request.prompt, request.sampling, std::move(rules),
                        request.options);
      else
        generation = begin(*engine, tokenizer, request);
      Generation* const all[] = {generation.get()};
      while (!generation->ended()) engine->step(all);
      if (generation->error) throw Error(*generation->error);
      ++found[{generation->tokens.begin() + generation->n_prompt, generation->tokens.end()}];
      result.tokens += generation->counters.emitted;
      result.accepted += generation->counters.accepted;
      console_.advance(what, static_cast<double>(i) / n_samples);
    }
    result.p_value = p_value(expected, found, n_samples);
    return result;
  };
  const auto expect_right = [&](const std::string& what, const DraftSetting& draft, int width) {
    CertificateCheck result = check(what, draft, width, rejection_verifier());
    result.passed = *result.p_value >= kFalseAlarm;
    result.result = fmt::format("{}p = {:.3g}", result.passed ? "" : "WRONG, ", *result.p_value);
    checks_.push_back(std::move(result));
  };
  expect_right("plain decoding", kNoDraft, 1);
  for (const DraftSetting& draft : bench->drafts)
    expect_right("--draft " + draft.text + ", chains", draft, 1);
  const DraftSetting& mix = bench->drafts.back();
  expect_right("--draft " + mix.text + ", trees", mix, 3);
  CertificateCheck wrong = check("a wrong rule is found", parse_draft_setting("prediction", {}), 1,
                                 std::make_shared<TooEager>());
  wrong.passed = *wrong.p_value < kFalseAlarm;
  wrong.result = fmt::format("{}p = {:.3g}", wrong.passed ? "" : "NOT FOUND, ", *wrong.p_value);
  checks_.push_back(std::move(wrong));
  return std::move(checks_);
}

}  // namespace

std::vector<CertificateCheck> certificate(const Machine& machine, const Settings& settings,
                                          Console& console) {
  const auto verifier = make_verifier(settings.verifier, settings.typical_acceptance);
  if (verifier->guarantee() == Guarantee::lossy) return {};
  Certificate made(machine, settings, console);
  return verifier->guarantee() == Guarantee::same_text ? made.coupled() : made.rejection();
}

}  // namespace outrider

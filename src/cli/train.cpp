// Makes a draft head for a model: answers, training, and what the head brings.

#include <algorithm>
#include <filesystem>

#include "cli/json.h"
#include "cli/make_features.h"
#include "cli/measure_answers.h"
#include "cli/model_name.h"
#include "cli/spread.h"
#include "formats/parse_json.h"
#include "formats/python_environment.h"
#include "runtime/head_choice.h"
#include "runtime/memory.h"
#include "training/shared_passages.h"
#include "training/trainer.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

// Of the hours: making answers, training; the rest is for loading and measuring.
constexpr double kFeatureShare = 0.4, kTrainingShare = 0.55;
// Tokens of answers from which a head learns nothing more in the hours that people give it.
constexpr std::uint64_t kTokensMax = 20'000'000;
constexpr double kMeasuredPerHour = 24;  // prompts
constexpr double kMeasuredMin = 8, kMeasuredMax = 24;
constexpr int kMeasuredPredict = 128;
constexpr std::uint64_t kMeasuredSeed = 1;

// "smollm2-135m-eagle3", where the command runs.
fs::path usual_folder(const Settings& settings, const std::string& kind) {
  std::string name = fs::path(settings.model).stem().string();
  std::ranges::replace(name, ':', '-');
  return name + "-" + kind;
}

// A larger vocabulary takes more rows to cover as much of what the model says.
int usual_draft_rows(const fs::path& features) {
  constexpr int kLarge = 65536;
  const fs::path path = features / "features.json";
  const nlohmann::json about = parse_json(read_text(path.string()), path.string());
  const auto model = about.find("model");
  if (model == about.end() || !model->is_object())
    throw Error("{}: has no \"model\"", path.string());
  return model->value("vocabulary_size", 0) > kLarge ? 8192 : 4096;
}

// Prompts that nothing was learned from, both kinds of them, nor from others about the same text.
std::vector<BenchPrompt> held_out_prompts(const fs::path& features, double hours) {
  const auto n =
      static_cast<std::size_t>(std::clamp(hours * kMeasuredPerHour, kMeasuredMin, kMeasuredMax));
  std::vector<BenchPrompt> held_out;
  std::vector<ShardPrompt> prompts = read_shard_prompts(features);
  SharedPassages learned;
  for (const ShardPrompt& prompt : prompts)
    if (!is_held_out(prompt.number)) learned.add(prompt.text);
  for (ShardPrompt& prompt : prompts) {
    if (!is_held_out(prompt.number) || prompt.text.empty()) continue;
    if (learned.shares_passage(prompt.text)) continue;
    held_out.push_back({.id = fmt::format("{}", prompt.number),
                        .group = std::string(name(prompt.source)),
                        .turns = {std::move(prompt.text)}});
    if (held_out.size() == n) break;
  }
  return held_out;
}

struct Measured {
  std::optional<GenerateMeasurements> answers;  // off, without the head, with it
  HeadChoice head;
};

// Plain decoding, what `run` does without the head, and with it. Keeps in the head's config.json
// how often it is right with this very file.
Measured measure(const Machine& machine, const Settings& given, const fs::path& head,
                 const fs::path& features, Console& console) {
  Settings without = given;
  without.seed = given.seed.value_or(kMeasuredSeed);
  if (!without.predict) without.predict = kMeasuredPredict;
  without.ctx_size.reset();
  Settings with = without;
  with.model_draft = head.string();
  const DraftSetting drafts[] = {parse_draft_setting("off", without),
                                 parse_draft_setting("auto", without),
                                 parse_draft_setting("auto", with)};
  Workbench bench(machine, with, drafts, console,
                  {.n_sequences = static_cast<int>(std::size(drafts)), .measures_head = true});
  Measured measured{.answers = {}, .head = bench.head_choice().value()};
  write_agreement(head, measured.head);
  const std::vector<BenchPrompt> prompts = held_out_prompts(features, given.hours);
  if (prompts.empty()) return measured;
  measured.answers = measure_answers(bench, with, drafts, prompts, console);
  measured.answers->drafts[1] = "before";
  measured.answers->drafts[2] = "with head";
  return measured;
}

// The run as standard error tells it, and at the end as a result.
class Run {
 public:
  Run(const Machine& machine, const Settings& settings, Console& console, TrainedKind kind)
      : machine_(machine),
        settings_(settings),
        console_(console),
        kind_(kind),
        out_(settings.out ? fs::path(*settings.out)
                          : usual_folder(settings, std::string(name(kind)))),
        features_(settings.features ? fs::path(*settings.features) : out_ / "features") {}

  void run() {
    check_flags();
    note_plan();
    look_at_model();
    const PythonEnvironment environment(out_.string(), settings_.offline, console_.progress());
    if (!environment.is_there()) environment.prepare();
    console_.clear();
    if (!settings_.features) make_features();
    train();
    console_.advance("measuring", 0);
    measured_ = measure(machine_, settings_, out_, features_, console_);
    console_.clear();
  }

  void report() const {
    if (settings_.json)
      write_json(json());
    else
      write_output(text());
  }

 private:
  double seconds() const { return settings_.hours * 3600; }

  // Once training has begun, the features stay as they are.
  bool has_begun_training() const { return fs::exists(out_ / "checkpoint" / "state.pt"); }

  void check_flags() const {
    for (const char* flag : {"--data", "--without", "--tokens"})
      if (settings_.features && settings_.given.contains(flag))
        throw UsageError("{}: the answers of --features are there already", flag);
    if (fs::exists(out_ / "config.json") && !fs::exists(out_ / "checkpoint"))
      throw Error("{}: holds another head; give another --out", out_.string());
  }

  void note_plan() const {
    const double left = 1 - kFeatureShare - kTrainingShare;
    std::string answers;
    if (says_tokens())
      answers = fmt::format("{} tokens of answers, ", settings_.tokens);
    else if (!settings_.features)
      answers = duration_text(seconds() * kFeatureShare) + " of answers, ";
    console_.note(fmt::format("{} for {} in {}: {} in all, {}{} of training, {} of measuring",
                              name(kind_), settings_.model, out_.string(), duration_text(seconds()),
                              answers, duration_text(training_hours() * 3600),
                              duration_text(seconds() * left)));
  }

  // Says what memory training takes, and refuses features that are missing or another model's.
  void look_at_model() const {
    const OpenedModel model =
        open_model(checked_model_name(settings_.model), pull_options(settings_, console_), {});
    if (has_begun_training() && !fs::exists(features_ / "features.json"))
      throw Error("{}: its features were deleted, so this run cannot go on; give another --out",
                  out_.string());
    if (settings_.features)
      check_features_of(describe_target(model, console_.progress()), features_);
    console_.clear();
    // Without what is mapped, which are the features: 7.2 GB measured for the 0.5B.
    constexpr std::uint64_t kAnyModel = 5'500'000'000, kPerWeight = 12;
    const TensorView& embedding = *model.model.weight(Role::token_embedding);
    const std::uint64_t bytes =
        kAnyModel + kPerWeight * static_cast<std::uint64_t>(embedding.elements());
    const std::uint64_t available = plannable_memory_bytes();
    console_.note(fmt::format(
        "training takes about {} of memory{}", human_bytes(bytes),
        bytes <= available ? ""
                           : fmt::format(", and {} can be had: it may be ended by the system",
                                         human_bytes(available))));
  }

  bool says_tokens() const { return settings_.given.contains("--tokens"); }

  double training_hours() const {
    return settings_.hours * (settings_.features ? kFeatureShare + kTrainingShare : kTrainingShare);
  }

  void make_features() {
    FeatureGoal goal{.tokens = kTokensMax, .seconds = kFeatureShare * seconds()};
    if (says_tokens()) goal = {.tokens = settings_.tokens};
    if (has_begun_training()) goal.seconds = 0;
    made_ = fill_feature_folder(machine_, settings_, console_, features_, goal);
    const FeatureCounts& counts = made_->counts;
    if (!has_begun_training())
      console_.note(fmt::format("{} tokens of answers to {} prompts in {}", counts.answer_tokens,
                                counts.n_prompts, duration_text(made_->seconds)));
    if (counts.n_prompts <= kHeldOutFirst)
      throw Error(
          "{}: one prompt in twenty is held out, so {} are too few; give more --data, --tokens or "
          "--hours",
          features_.string(), counts.n_prompts);
  }

  void train() {
    TrainingOptions options{.kind = kind_, .features = features_, .out = out_};
    options.hours = training_hours();
    options.draft_rows = usual_draft_rows(features_);
    options.threads = settings_.threads;
    options.offline = settings_.offline;
    options.progress = console_.progress();
    if (settings_.seed) options.seed = static_cast<std::int64_t>(*settings_.seed);
    std::string more;
    std::error_code ignored;
    fs::create_directories(out_ / "checkpoint", ignored);  // tells our folder from another head's
    trained_ = train_head(options, [&](const TrainingEvent& event) {
      if (event.kind == TrainingEvent::Kind::plan)
        console_.note(
            fmt::format("training for {}: {} weights on {} tokens of answers, {} tokens to guess",
                        duration_text(options.hours * 3600), event.parameters.value_or(0),
                        event.answer_tokens.value_or(0), event.draft_rows.value_or(0)));
      if (event.kind == TrainingEvent::Kind::agreement && event.agreement)
        console_.note(
            fmt::format("recomputed logits choose the model's own token at {:.1f}% of {} places",
                        100 * *event.agreement, event.agreement_positions.value_or(0)));
      if (event.acceptance && event.acceptance->length)
        more = fmt::format("{:.2f} tokens per pass", *event.acceptance->length);
      if (event.gflops) gflops_.push_back(*event.gflops);
      if (event.done) console_.advance("training", *event.done, more);
    });
    console_.clear();
    if (!trained_.acceptance) throw Error("{}: the trainer measured nothing", out_.string());
    if (!gflops_.empty())
      console_.note(
          fmt::format("trained on {} tokens, each as often as used, in {}: {:.0f} GFLOP/s",
                      trained_.tokens.value_or(0), duration_text(trained_.seconds.value_or(0)),
                      spread(gflops_).median));
  }

  nlohmann::ordered_json json() const {
    const HeldOutAcceptance& acceptance = *trained_.acceptance;
    nlohmann::ordered_json json{{"head", out_.string()},
                                {"kind", name(kind_)},
                                {"model", settings_.model},
                                {"training_seconds", trained_.seconds.value_or(0)},
                                {"trained_tokens", trained_.tokens.value_or(0)},
                                {"acceptance_greedy", acceptance.greedy},
                                {"acceptance_sampled", acceptance.sampled},
                                {"agreement", measured_.head.agreement}};
    if (!gflops_.empty()) json["gflops"] = spread(gflops_).median;
    if (trained_.agreement) json["recomputed_agreement"] = *trained_.agreement;
    if (made_) {
      json["features_seconds"] = made_->seconds;
      json["answer_tokens"] = made_->counts.answer_tokens;
    }
    if (measured_.answers) json["answers"] = generate_json(*measured_.answers);
    return json;
  }

  std::string text() const {
    const HeldOutAcceptance& acceptance = *trained_.acceptance;
    Table table({"depth", "greedy", "sampled"}, "rrr");
    for (std::size_t depth = 0; depth < acceptance.greedy.size(); ++depth)
      table.add({fmt::format("{}", depth + 1),
                 fmt::format("{:.0f}%", 100 * acceptance.greedy[depth]),
                 fmt::format("{:.0f}%", 100 * acceptance.sampled[depth])});
    std::string text = fmt::format(
        "Guesses at {} places of answers that nothing was learned from. greedy: right where those "
        "before it were; sampled: accepted at temperature 1.\n{}\n",
        acceptance.positions.value_or(0), table.text(output_width()));
    if (measured_.answers)
      text += fmt::format(
          "{} prompts that nothing was learned from, answered without drafts (off), with --draft "
          "auto without the head (before), and with it.\n{}",
          measured_.answers->prompts.size(),
          generate_text(*measured_.answers, false, output_width()));
    return text +
           fmt::format("\nTry it: outrider run -m {} -md {}\n", settings_.model, out_.string());
  }

  const Machine& machine_;
  const Settings& settings_;
  Console& console_;
  const TrainedKind kind_;
  const fs::path out_, features_;
  std::optional<FeatureRun> made_;
  TrainingEvent trained_;
  std::vector<double> gflops_;
  Measured measured_;
};

int train(const Machine& machine, const Settings& settings) {
  Console console(settings);
  const TrainedKind kind = settings.arguments[0] == name(TrainedKind::medusa) ? TrainedKind::medusa
                                                                              : TrainedKind::eagle3;
  Run run(machine, settings, console, kind);
  run.run();
  run.report();
  return kDone;
}

}  // namespace

Command train_command() {
  return {
      .name = "train",
      .arguments = "KIND",
      .arguments_min = 1,
      .arguments_max = 1,
      .choices = {"eagle3", "medusa"},
      .summary = "make a draft head for a model, from the model alone",
      .description =
          "Has the model answer prompts (features), trains a head on what it computed (EAGLE-3 or "
          "Medusa), and measures what the head brings on prompts that it never saw. The head is "
          "the folder --out, which --model-draft takes. The same command again goes on where it "
          "was interrupted. The first time, PyTorch is installed into a Python environment in the "
          "cache, which takes minutes and gigabytes.",
      .flag_set = FlagSet::loading,
      .flags = {"--hours", "--out", "--features", "--data", "--without", "--tokens", "--predict",
                "--ctx-size", "--parallel", "--seed", "--temp"},
      .run = train};
}

}  // namespace outrider

#include "cli/make_features.h"

#include <algorithm>
#include <cmath>
#include <system_error>

#include "base/hash.h"
#include "base/stopwatch.h"
#include "cli/generate.h"
#include "cli/signals.h"
#include "cli/text_input.h"
#include "speculation/time_pass.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

constexpr int kParallel = 32;
constexpr int kPredict = 512;
constexpr int kPromptRoom = 512;  // beside an answer, for prompts
constexpr std::uint64_t kSeed = 1;
// A text has so many tokens with its prompt for each of its answer's.
constexpr double kTextPerAnswer = 1.5;
// Of the speed of full passes at the beginning of texts, what is left with longer texts, choices,
// prompts that the model makes, and answers that others have left alone: 0.36 to 0.6 measured.
constexpr double kUsefulShare = 0.45;
// Where time is the limit, so many times the tokens that are expected may come in it.
constexpr double kRoom = 1.4;
constexpr double kNotedMs = 10'000;  // between notes of the time that was spent

FeatureWork feature_work(const Settings& settings) {
  FeatureWork work{
      .n_predict = settings.predict.value_or(kPredict),
      .n_parallel = settings.given.contains("--parallel") ? settings.parallel : kParallel,
      .seed = settings.seed.value_or(kSeed),
      .temperature = settings.filters.temperature};
  if (work.n_predict < 1) throw UsageError("--predict: at least 1");
  if (settings.data) {
    work.data.emplace();
    for (const BenchPrompt& prompt : parse_prompts(read_text(*settings.data), *settings.data))
      work.data->push_back(prompt.turns[0]);
  }
  for (const std::string& file : settings.without)
    for (const BenchPrompt& prompt : parse_prompts(read_text(file), file))
      for (const std::string& turn : prompt.turns) work.without.add(turn);
  return work;
}

// Everything that decides what the shards hold: whoever goes on asks for the same.
nlohmann::json describe(const Workbench& bench, const FeatureWork& work, const Settings& settings,
                        Console& console) {
  nlohmann::json about{{"format", kFeatureFormat},
                       {"model", describe_target(bench.model(), console.progress())},
                       {"taps", feature_taps(bench.target().spec())},
                       {"texts", json_of(work)}};
  about["context"] = bench.context();
  about["cache_type"] = settings.cache_type == CacheType::f16    ? "f16"
                        : settings.cache_type == CacheType::q8_0 ? "q8_0"
                                                                 : "f32";
  const auto hash = [](const std::string& text) {
    Sha256 sha;
    sha.update(std::as_bytes(std::span(text)));
    return sha.hex();
  };
  std::string without;
  for (const std::string& file : settings.without) without += hash(read_text(file));
  about["texts"]["data"] =
      settings.data ? nlohmann::json(hash(read_text(*settings.data))) : nullptr;
  about["texts"]["without"] = hash(without);
  return about;
}

// Of passes in which all answers have a row.
double tokens_per_second(Backend& target, int n_parallel) {
  const OwnedSequence sequence(target);
  const int rows = std::min({n_parallel, target.options().n_slots, target.options().context});
  double least_ms = 0;
  for (int round = 0; round < 3; ++round) {
    const double ms = time_pass(target, sequence.id(), rows, rows);
    least_ms = round == 0 ? ms : std::min(least_ms, ms);
  }
  return 1000 * rows / least_ms;
}

std::uint64_t bytes_in(const fs::path& folder) {
  std::uint64_t bytes = 0;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::uintmax_t size = entry.file_size(ignored);
    if (!ignored) bytes += size;
  }
  return bytes;
}

}  // namespace

std::string duration_text(double seconds) {
  const long minutes = std::lround(seconds / 60);
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (minutes < 60) return fmt::format("{} min", minutes);
  return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

FeatureRun fill_feature_folder(const Machine& machine, const Settings& given, Console& console,
                               const fs::path& folder, const FeatureGoal& goal) {
  FeatureWork work = feature_work(given);
  Settings settings = given;
  if (!settings.ctx_size) settings.ctx_size = work.n_predict + kPromptRoom;
  const DraftSetting off{.text = "off", .choices = {}};
  Workbench bench(machine, settings, {&off, 1}, console, {.n_sequences = work.n_parallel});
  const OpenedModel& model = bench.model();
  const ModelSpec& spec = bench.target().spec();
  FeatureFolder features(folder, describe(bench, work, settings, console), model.model);
  console.clear();

  const FeatureCounts before = count_features(features);
  const double spent = goal.seconds ? features.seconds() : 0;
  const double left = goal.seconds ? std::max(0.0, *goal.seconds - spent) : 0;
  if (goal.seconds && left == 0 && before.n_shards > 0)
    return {.counts = before, .seconds = spent, .bytes = bytes_in(folder)};
  // Of texts, of which an answer is a part.
  const double speed = kUsefulShare * tokens_per_second(bench.target(), work.n_parallel);
  work.n_tokens = goal.tokens;
  if (goal.seconds) {
    const double expected = left * speed / kTextPerAnswer;
    work.n_tokens = std::min(
        work.n_tokens, before.answer_tokens + static_cast<std::uint64_t>(kRoom * expected) + 1);
  }
  const std::uint64_t missing = work.n_tokens - std::min(work.n_tokens, before.answer_tokens);
  const auto text_tokens =
      static_cast<std::uint64_t>(static_cast<double>(missing) * kTextPerAnswer);
  const std::uint64_t bytes = feature_bytes(spec, text_tokens);  // beside the target's matrices
  if (missing > 0) {
    if (before.answer_tokens > 0)
      console.note(fmt::format("{}: goes on after {} tokens of answers", folder.string(),
                               before.answer_tokens));
    const std::string size = human_bytes(bytes + target_bytes(model.model));
    console.note(
        goal.seconds
            ? fmt::format("answers for {}, {} at a time: up to {} tokens and {} in {}",
                          duration_text(left), work.n_parallel, missing, size, folder.string())
            : fmt::format("{} tokens of answers, {} at a time: about {} and {} in {}", missing,
                          work.n_parallel, duration_text(static_cast<double>(text_tokens) / speed),
                          size, folder.string()));
    if (!model.chat_template)
      console.note(fmt::format("{} has no chat template: it continues texts", model.name));
    std::error_code problem;
    const fs::space_info disk = fs::space(folder, problem);
    if (!problem && disk.available < bytes)
      throw Error(
          "{}: the features need {}, and the disk has {} left; make room, choose another "
          "disk or ask for fewer --tokens",
          folder.string(), human_bytes(bytes), human_bytes(disk.available));
  }

  const std::unique_ptr<Engine> engine = bench.make_engine(off);
  FeatureRun run;
  const Stopwatch watch;
  struct TimeIsUp {};
  const auto share_of_goal = [&](std::uint64_t answer_tokens) {
    const double of_tokens =
        static_cast<double>(answer_tokens) / static_cast<double>(work.n_tokens);
    return std::max(of_tokens, goal.seconds ? (spent + watch.ms() / 1000) / *goal.seconds : 0);
  };
  std::string activity;
  Stopwatch shown, noted;
  const FeatureWatcher watcher{
      .found =
          [&](const PromptMaterial& material) {
            if (material.n_python_files == 0)
              console.note("no Python library on this machine: no prompts about code are built");
            if (material.n_documents == 0)
              console.note(
                  "no documentation in /usr/share/doc: few questions and summaries are built; "
                  "Debian's debian-reference-en and developers-reference make them more");
          },
      .stepped =
          [&](std::uint64_t answer_tokens, std::uint64_t computed) {
            stop_if_interrupted();
            run.computed = computed;
            if (goal.seconds && noted.ms() >= kNotedMs) {
              features.note_seconds(spent + watch.ms() / 1000);
              noted = Stopwatch();
            }
            if (goal.seconds && watch.ms() >= 1000 * left && features.has_shard(0))
              throw TimeIsUp();
            if (shown.ms() < 100) return;
            shown = Stopwatch();
            console.advance(activity, std::min(1.0, share_of_goal(answer_tokens)),
                            fmt::format("{} tokens, {:.0f} tokens/s", answer_tokens,
                                        1000 * static_cast<double>(computed) / watch.ms()));
          },
      .began = [&](std::string_view began) { activity = began; }};
  try {
    run.counts = make_features(*engine, model, features, work, watcher);
  } catch (const TimeIsUp&) {
    run.counts = count_features(features);
  }
  run.seconds = spent + watch.ms() / 1000;
  if (goal.seconds) features.note_seconds(run.seconds);
  run.bytes = bytes_in(folder);
  console.clear();
  return run;
}

}  // namespace outrider

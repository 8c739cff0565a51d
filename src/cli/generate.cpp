#include "cli/generate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/numbers.h"
#include "cli/failure.h"
#include "cli/model_name.h"
#include "cli/step_lines.h"
#include "cli/text_input.h"
#include "cli/thread_count.h"
#include "formats/known_pairs.h"
#include "runtime/head_file.h"
#include "runtime/sampling_defaults.h"
#include "speculation/verifier.h"

namespace outrider {

DraftSetting parse_draft_setting(const std::string& text, const Settings& settings) {
  if (parse_number<int>(text))
    throw UsageError(
        "--draft {}: names drafters, not a number; for the depth write --draft-depth {}", text,
        text);
  DraftSetting setting{.text = text, .choices = {}};
  try {
    setting.choices = parse_draft(text, settings.model_draft.value_or(""));
  } catch (const Error& error) {
    throw UsageError("--draft: {}", message_of(error));
  }
  for (const DraftChoice& choice : setting.choices)
    if (choice.kind->runs_model() && !choice.kind->copies_target)
      checked_model_name(choice.value);
    else if (choice.kind->value_is_prediction && !choice.value.empty())
      setting.prediction = read_text(choice.value);
  return setting;
}

namespace {

// off, each drafter that needs nothing that is not there, and auto.
std::vector<std::string> every_draft(const Settings& settings) {
  std::vector<std::string> drafts{"off"};
  for (const DrafterKind* kind : drafter_kinds()) {
    const std::string_view head = head_kind(settings.model_draft.value_or(""));
    const bool is_there = kind->value_is_prediction ? settings.prompts_file.has_value()
                          : kind->runs_head()       ? kind->name == head
                          : kind->runs_model()
                              ? kind->is_automatic && settings.model_draft && head.empty()
                              : kind->value.empty() || kind->value_is_optional;
    if (is_there) drafts.push_back(kind->name);
  }
  drafts.emplace_back("auto");
  return drafts;
}

}  // namespace

std::vector<DraftSetting> parse_draft_settings(const Settings& settings,
                                               const std::vector<std::string>& standard) {
  std::vector<std::string> texts;
  for (const std::string& text : settings.draft.empty() ? standard : settings.draft) {
    const std::vector<std::string> meant =
        text == "all" ? every_draft(settings) : std::vector{text};
    texts.insert(texts.end(), meant.begin(), meant.end());
  }
  std::vector<DraftSetting> result;
  for (const std::string& text : texts) result.push_back(parse_draft_setting(text, settings));
  return result;
}

void add_catalog_draft(DraftSetting& draft, const Settings& settings, Console& console) {
  if (draft.text != "auto" || settings.model_draft) return;
  const CatalogEntry* const target = find_in_catalog(settings.model);
  if (!target || !target->draft) return;
  const CatalogEntry& entry = *find_in_catalog(target->draft->model);
  if (!is_cached(entry)) {
    console.note(fmt::format("{} times as fast with a draft model: outrider pull {} ({})",
                             target->draft->speedup, entry.name, human_bytes(entry.bytes)));
    return;
  }
  const auto kind = std::ranges::find_if(drafter_kinds(), &DrafterKind::runs_model);
  draft.choices.push_back({*kind, entry.name, true});
}

void note_known_drafts(const DraftSetting& draft, const Settings& settings, const Checkpoint& model,
                       Console& console) {
  if (draft.text != "auto" || settings.model_draft || find_in_catalog(settings.model)) return;
  if (has_prediction_layer(model))
    console.note(
        fmt::format("{} may be faster with its own layer for prediction "
                    "(--draft lookup+mtp)",
                    settings.model));
  const KnownModel* const known = known_model(model.metadata);
  if (!known) return;
  const auto note = [&](std::string_view what, const std::vector<std::string>& names,
                        std::string_view value) {
    if (names.empty()) return;
    console.note(fmt::format("{} may be faster with a {}: {} (-md {})", known->name, what,
                             fmt::join(names, " or "), value));
  };
  note("draft model", known->drafts, "FILE");
  note("head", known->heads, "FOLDER");
}

void check_draft_flags(const Settings& settings, std::span<const DraftSetting> drafts,
                       bool prompts_bring_predictions) {
  // Requests to a server may choose their verifier, as they bring their predictions.
  if (settings.typical_flag && settings.verifier != "typical" && !prompts_bring_predictions)
    throw UsageError("{}: needs --verify typical", *settings.typical_flag);
  const auto any_asks_for = [&](const auto& wanted) {
    for (const DraftSetting& draft : drafts)
      for (const DraftChoice& choice : draft.choices)
        if (wanted(choice)) return true;
    return false;
  };
  if (!settings.prompts_file && !prompts_bring_predictions)
    for (const DraftSetting& draft : drafts)
      for (const DraftChoice& choice : draft.choices)
        if (choice.kind->value_is_prediction && draft.text != "auto" && draft.prediction.empty())
          throw UsageError("--draft {0}: {1} has no text; write {1}={2}", draft.text,
                           choice.kind->name, choice.kind->value);
  if (settings.given.contains("--model-draft") && !any_asks_for([](const DraftChoice& choice) {
        return choice.kind->names_file() && !choice.value.empty();
      }))
    throw UsageError("--model-draft: no --draft asks for a model; write --draft auto");
  // How a draft model is loaded is the same for all kinds that have one of their own.
  const auto takes_flags_of = [](const DrafterKind& asked, const DrafterKind& kind) {
    return &asked == &kind || (kind.is_automatic && kind.runs_model() && asked.names_file());
  };
  for (const DrafterKind* kind : drafter_kinds())
    for (const DrafterFlag& flag : kind->flags)
      if (settings.given.contains(flag.name) && !any_asks_for([&](const DraftChoice& choice) {
            return takes_flags_of(*choice.kind, *kind);
          }))
        throw UsageError("{}: no --draft asks for {}; write --draft {}", flag.name, kind->name,
                         kind->usage());
}

namespace {

// Tried before a model is loaded, which takes long.
std::ofstream open_trace(const Settings& settings) {
  std::ofstream file;
  if (!settings.trace_file) return file;
  file.open(*settings.trace_file);
  if (!file)
    throw Error("--trace {}: cannot be written: {}", *settings.trace_file, std::strerror(errno));
  return file;
}

RuntimeOptions runtime_options(const Settings& settings, std::span<const DraftSetting> drafts,
                               Console& console, const WorkbenchOptions& workbench) {
  RuntimeOptions options{.model = checked_model_name(settings.model),
                         .offline = settings.offline,
                         .text = text_settings(settings),
                         .context = settings.ctx_size,
                         .prompt_chunk = settings.batch_size,
                         .cache_type = settings.cache_type,
                         .n_threads = thread_count(settings, console),
                         .n_sequences = workbench.n_sequences,
                         .pool = workbench.pool,
                         .drafters = {},
                         .drafter_flags = settings.drafter_flags,
                         .planner = {.automatic = settings.planner_automatic,
                                     .rows = settings.draft_rows,
                                     .depth = settings.draft_depth,
                                     .width = settings.draft_width},
                         .keeps = workbench.keeps,
                         .reads_profiles = workbench.reads_profiles,
                         .measures_head = workbench.measures_head};
  for (const DraftSetting& draft : drafts)
    options.drafters.insert(options.drafters.end(), draft.choices.begin(), draft.choices.end());
  return options;
}

}  // namespace

Workbench::Workbench(const Machine& machine, const Settings& settings,
                     std::span<const DraftSetting> drafts, Console& console,
                     WorkbenchOptions options)
    : settings_(settings),
      console_(console),
      // 32 bits are enough to be different and short enough to type.
      seed_(settings.seed ? *settings.seed : std::random_device()()),
      verifier_(make_verifier(settings.verifier, settings.typical_acceptance)),
      trace_(open_trace(settings)),
      runtime_(runtime_options(settings, drafts, console, options), machine.choose_factory,
               console.progress()) {
  console.clear();
  sampling_ = read_sampling();
}

std::vector<std::unique_ptr<Drafter>> Workbench::make_drafters(const DraftSetting& draft) {
  auto drafters = runtime_.make_drafters(draft.choices);
  console_.clear();
  return drafters;
}

std::unique_ptr<Engine> Workbench::make_engine(const DraftSetting& draft) {
  std::unique_ptr<Engine> engine = runtime_.make_engine(draft.choices);
  console_.clear();
  if (settings_.trace_file || settings_.steps)
    engine->on_step(
        [this, name = draft.text](const StepReport& report) { show_step(name, report); });
  return engine;
}

std::unique_ptr<Engine> Workbench::make_engine(const DraftSetting& draft,
                                               const PlannerOptions& planner) {
  std::unique_ptr<Engine> engine = runtime_.make_engine(draft.choices, planner);
  console_.clear();
  return engine;
}

void Workbench::show_step(const std::string& draft, const StepReport& report) {
  if (settings_.trace_file) {
    trace_ << step_json(draft, report) << std::endl;
    if (!trace_)
      throw Error("--trace {}: cannot be written: {}", *settings_.trace_file, std::strerror(errno));
  }
  if (settings_.steps) console_.note(step_text(draft, report, tokenizer()));
}

SamplingParams Workbench::read_sampling() const {
  SamplingParams params;
  params.seed = seed_;
  params.bias = settings_.logit_bias;
  for (const TokenBias& bias : params.bias) {
    if (bias.token >= model().model.spec.vocabulary) {
      throw UsageError("--logit-bias: token {} does not exist, the vocabulary has {}", bias.token,
                       model().model.spec.vocabulary);
    }
  }
  params.filters = filters_for(settings_.filters, model().model.checkpoint->metadata);
  params.repeat_last_n = settings_.repeat_last_n;
  return params;
}

std::optional<std::string> misalignment(std::string_view drafter, const DrafterCounts& counts) {
  const bool is_model = std::ranges::any_of(drafter_kinds(), [&](const DrafterKind* kind) {
    return kind->name == drafter && (kind->runs_model() || kind->runs_head());
  });
  if (!is_model || !is_misaligned(counts)) return {};
  return fmt::format(
      "the draft model is misaligned: it was right about the next token in {} of {} steps, so it "
      "brings little; was it made for this model?",
      counts.first_right, counts.first);
}

void Workbench::count_drafts(const Completion& answer) {
  for (const Completion::Draft& draft : answer.draft) {
    DrafterCounts& counts = drafted_[draft.name] += draft.counts;
    const std::optional<std::string> problem = misalignment(draft.name, counts);
    if (!problem || is_misaligned_) continue;
    is_misaligned_ = true;
    console_.note(*problem);
  }
}

void Workbench::note_sampling() const {
  if (sampling().filters.temperature <= 0) return;
  if (!settings_.seed) console_.note(fmt::format("seed {}", seed_));
  if (verifier_->guarantee() == Guarantee::lossy)
    console_.note(
        fmt::format("--verify {} is lossy: the text does not follow the model's distribution",
                    verifier_->name()));
}

StopParams Workbench::stop(int standard_predict) const {
  return {settings_.predict.value_or(standard_predict), settings_.stop, settings_.ignore_eos};
}

Request Workbench::request(std::vector<Token> prompt, const DraftSetting& draft,
                           int standard_predict, const std::string& prediction) const {
  Request request{
      .prompt = std::move(prompt), .sampling = sampling(), .stop = stop(standard_predict)};
  request.options.verifier = verifier_;
  if (std::ranges::any_of(draft.choices, [](const DraftChoice& choice) {
        return choice.kind->value_is_prediction;
      }))
    request.options.prediction =
        tokenizer().encode(prediction.empty() ? draft.prediction : prediction);
  return request;
}

std::vector<Message> Workbench::conversation() const {
  if (!settings_.system_prompt) return {};
  if (!uses_template()) {
    throw Error("--system-prompt: {}",
                settings_.raw ? "has no place in a raw prompt; write it into the prompt"
                              : "this model has no chat template to put it into");
  }
  return {{"system", *settings_.system_prompt}};
}

std::vector<Token> Workbench::prompt_tokens(const Session& session,
                                            const std::string& prompt) const {
  if (prompt.empty()) throw Error("the prompt is empty");
  std::vector<Message> messages = conversation();
  if (uses_template()) {
    messages.push_back({"user", prompt});
    return session.tokens_of(messages);
  }
  const TextPiece pieces[] = {{prompt, settings_.raw && !settings_.no_special}};
  return session.tokens_of(pieces);
}

double ratio(long part, long whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

AnswerTotals& AnswerTotals::operator+=(const AnswerTotals& other) {
  prompt_ms += other.prompt_ms;
  generation_ms += other.generation_ms;
  timed_tokens += other.timed_tokens;
  counters += other.counters;
  return *this;
}

double AnswerTotals::tokens_per_second() const {
  return generation_ms > 0 ? 1000 * static_cast<double>(timed_tokens) / generation_ms : 0;
}

double AnswerTotals::tokens_per_pass() const {
  return ratio(counters.emitted, counters.generating);
}

double AnswerTotals::acceptance() const {
  return ratio(counters.accepted, counters.drafted);
}

double AnswerTotals::drafting_share() const {
  return whole_ms() > 0 ? counters.draft_ms / whole_ms() : 0;
}

std::string AnswerTotals::acceptance_text() const {
  return counters.drafted ? fmt::format("{:.0f}%", 100 * acceptance()) : "-";
}

double whole_ratio(const AnswerTotals& first, const AnswerTotals& totals) {
  return totals.whole_ms() > 0 ? first.whole_ms() / totals.whole_ms() : 0;
}

AnswerTotals totals_of(const Completion& answer) {
  return {.prompt_ms = answer.prompt_ms,
          .generation_ms = answer.generation_ms,
          .timed_tokens = answer.completion_tokens - answer.first_tokens,
          .counters = answer.counters};
}

}  // namespace outrider

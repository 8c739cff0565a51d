#include "cli/generate.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "cli/failure.h"
#include "cli/memory.h"
#include "cli/signals.h"
#include "cli/step_lines.h"
#include "cli/text_input.h"
#include "cli/thread_count.h"
#include "speculation/draft_vocabulary.h"

namespace outrider {

DraftSetting parse_draft_setting(const std::string& text, const Settings& settings) {
  try {
    return {text, parse_draft(text, settings.model_draft.value_or(""))};
  } catch (const Error& error) {
    throw UsageError("{}", error.what());
  }
}

std::vector<DraftSetting> parse_draft_settings(const Settings& settings,
                                               const std::vector<std::string>& standard) {
  std::vector<DraftSetting> result;
  for (const std::string& text : settings.draft.empty() ? standard : settings.draft) {
    result.push_back(parse_draft_setting(text, settings));
  }
  return result;
}

void check_draft_flags(const Settings& settings, std::span<const DraftSetting> drafts) {
  for (const DraftSetting& draft : drafts)
    if (std::ranges::count(draft.choices, "model", &DraftChoice::name) > 0) return;
  if (settings.given.contains("--model-draft"))
    throw UsageError("--model-draft: no --draft asks for a model; write --draft lookup+model");
  for (const char* flag : {"--draft-quantize", "--draft-vocab"}) {
    if (settings.given.contains(flag))
      throw UsageError("{}: no draft model is asked for; give --model-draft or --draft model=MODEL",
                       flag);
  }
}

Workbench::Workbench(const Device& device, const Settings& settings,
                     std::span<const DraftSetting> drafts, Console& console)
    : device_(device),
      settings_(settings),
      console_(console),
      // 32 bits are enough to be different and short enough to type.
      seed_(settings.seed ? *settings.seed : std::random_device()()),
      file_(open_model(settings.model, settings, console)) {
  options_.n_threads = thread_count(settings, console);
  options_.cache_type = settings.cache_type;
  // A pass must have room for node 0 and its drafts.
  options_.batch_rows = std::max(settings.batch_size, settings.draft_rows + 1);
  for (const DraftSetting& draft : drafts) {
    for (const DraftChoice& choice : draft.choices) {
      if (choice.name == "model") draft_file(choice.value);
    }
  }
  choose_context();
  if (settings.trace_file) {
    trace_.open(*settings.trace_file);
    if (!trace_)
      throw Error("--trace {}: cannot be written: {}", *settings.trace_file, std::strerror(errno));
  }
  target_ = load(file_, options_);
}

ModelFile& Workbench::draft_file(const std::string& name) {
  const auto found = draft_files_.find(name);
  if (found != draft_files_.end()) return found->second;
  return draft_files_.emplace(name, open_model(name, settings_, console_)).first->second;
}

void Workbench::choose_context() {
  const int trained = file_.model.spec.context_trained;
  const int wanted = settings_.ctx_size.value_or(std::min(trained, kContextMax));
  const std::uint64_t available = available_memory();
  // Draft models hold the same texts, so they share the choice.
  std::vector<std::pair<const Model*, LoadOptions>> drafts;
  for (const auto& [name, file] : draft_files_)
    drafts.emplace_back(&file.model, draft_options(file));
  Device all = device_;
  all.memory_need = [&](const Model& model, const LoadOptions& options) {
    MemoryPlan plan = device_.memory_need(model, options);
    for (auto& [draft, draft_options] : drafts) {
      draft_options.context = options.context;
      plan.weights += device_.memory_need(*draft, draft_options).total();
    }
    return plan;
  };
  const int fitting = context_that_fits(all, file_.model, options_, wanted, available);
  if (fitting == 0) {
    options_.context = 64;
    throw Error("{}: needs {} of memory, and {} are available; use a smaller model", file_.name,
                human_bytes(all.memory_need(file_.model, options_).total()),
                human_bytes(available));
  }
  if (fitting < wanted && settings_.ctx_size) {
    throw Error(
        "--ctx-size {}: does not fit into the {} of memory that are available; the largest "
        "that does is {}",
        wanted, human_bytes(available), fitting);
  }
  options_.context = fitting;
  if (fitting < wanted) {
    console_.note(fmt::format("context {} instead of {}: {} of memory are available", fitting,
                              wanted, human_bytes(available)));
  }
  if (settings_.ctx_size && wanted > trained) {
    console_.note(
        fmt::format("context {}: the model was trained for {}, answers beyond it may be poor",
                    wanted, trained));
  }
}

LoadOptions Workbench::draft_options(const ModelFile& draft) const {
  LoadOptions options = options_;
  options.requantize = settings_.draft_quantize;
  const auto& [size, corpus] = settings_.draft_vocabulary;
  if (!size || *size >= draft.model.spec.vocabulary) return options;
  std::vector<Token> tokens;
  if (!corpus.empty()) tokens = draft.tokenizer->encode(read_text(corpus));
  options.output_ids = frequent_tokens(*draft.tokenizer, tokens, *size);
  options.output_room = kDraftTokensOfTexts;
  return options;
}

std::shared_ptr<Backend> Workbench::load(const ModelFile& file, const LoadOptions& options) {
  const std::string label = "loading " + file.name;
  std::shared_ptr<Backend> backend = device_.load(
      file.model, options, [&](double fraction) { console_.advance(label, fraction); });
  console_.clear();
  stop_if_interrupted();
  console_.detail(fmt::format(
      "{}: {}, {} of weights, context {}, {} threads, {}", file.name, file.model.spec.family,
      human_bytes(device_.memory_need(file.model, options).weights), options_.context,
      options_.n_threads, device_.chosen_instruction_set()));
  return backend;
}

std::vector<std::unique_ptr<Drafter>> Workbench::drafters(const DraftSetting& draft) {
  DraftContext context;
  context.tokenizer = file_.tokenizer.get();
  context.vocabulary = file_.model.spec.vocabulary;
  context.memory_bytes = static_cast<std::size_t>(settings_.draft_memory_mib) << 20;
  context.load_model = [this](const std::string& name) {
    const ModelFile& file = draft_file(name);
    std::shared_ptr<Backend>& backend = draft_backends_[name];
    if (!backend) backend = load(file, draft_options(file));
    return DraftModel{backend, make_tokenizer(file.model.checkpoint->metadata)};
  };
  return make_drafters(draft.choices, context);
}

std::unique_ptr<Engine> Workbench::make_engine(const DraftSetting& draft) {
  EngineOptions options;
  options.budget = {.automatic = settings_.budget_automatic,
                    .rows = settings_.draft_rows,
                    .depth = settings_.draft_depth,
                    .width = settings_.draft_width};
  options.prompt_chunk = settings_.batch_size;
  auto engine = std::make_unique<Engine>(target_, drafters(draft), options);
  engine->measure_costs();
  if (settings_.trace_file || settings_.steps)
    engine->on_step([this](const StepReport& report) { show_step(report); });
  return engine;
}

void Workbench::show_step(const StepReport& report) {
  if (settings_.trace_file) {
    trace_ << step_json(report) << std::endl;
    if (!trace_) throw Error("--trace {}: cannot be written", *settings_.trace_file);
  }
  if (settings_.steps) console_.note(step_text(report));
}

SamplingParams Workbench::sampling() const {
  SamplingParams params;
  params.seed = seed_;
  params.bias = settings_.logit_bias;
  for (const TokenBias& bias : params.bias) {
    if (bias.token >= file_.model.spec.vocabulary) {
      throw UsageError("--logit-bias: token {} does not exist, the vocabulary has {}", bias.token,
                       file_.model.spec.vocabulary);
    }
  }
  const Metadata& metadata = file_.model.checkpoint->metadata;
  // A file's own defaults, by llama.cpp's keys. What no flag would be allowed to say is no default
  // either.
  const auto from_file = [&](const char* key, float standard, float least, float most) {
    const double value =
        metadata.number(fmt::format("general.sampling.{}", key)).value_or(standard);
    return value >= least && value <= most ? static_cast<float>(value) : standard;
  };
  Filters& filters = params.filters;
  const FilterSettings& set = settings_.filters;
  constexpr float kHuge = 1e6f;
  const float temperature = from_file("temp", filters.temperature, 0, kHuge);
  filters.temperature = set.temperature.value_or(
      temperature_in_range(temperature) ? temperature : filters.temperature);
  filters.top_k = set.top_k.value_or(
      static_cast<int>(from_file("top_k", static_cast<float>(filters.top_k), 0, kHuge)));
  filters.top_p = set.top_p.value_or(from_file("top_p", filters.top_p, 0, 1));
  filters.min_p = set.min_p.value_or(from_file("min_p", filters.min_p, 0, 1));
  filters.typical_p = set.typical_p.value_or(filters.typical_p);
  filters.repeat_penalty = set.repeat_penalty.value_or(
      from_file("penalty_repeat", filters.repeat_penalty, 0.01f, kHuge));
  filters.presence_penalty = set.presence_penalty.value_or(filters.presence_penalty);
  filters.frequency_penalty = set.frequency_penalty.value_or(filters.frequency_penalty);
  params.repeat_last_n = settings_.repeat_last_n;
  return params;
}

StopParams Workbench::stop(int standard_predict) const {
  return {settings_.predict.value_or(standard_predict), settings_.stop, settings_.ignore_eos};
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

std::string drafts_text(const Completion& completion) {
  std::vector<std::string> parts;
  for (const auto& draft : completion.draft) {
    if (draft.counts.proposed == 0) continue;
    parts.push_back(fmt::format("{} {} of {} accepted", draft.name, draft.counts.accepted,
                                draft.counts.proposed));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

double tokens_per_pass(const Counters& counters) {
  // Every pass that generates brings one token of the model's own besides the accepted ones.
  const long passes = counters.emitted - counters.accepted;
  return passes > 0 ? static_cast<double>(counters.emitted) / static_cast<double>(passes) : 0;
}

}  // namespace outrider

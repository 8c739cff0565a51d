#include "runtime/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/machine.h"
#include "base/processor.h"
#include "formats/catalog.h"
#include "runtime/head_file.h"
#include "runtime/history_store.h"
#include "runtime/memory.h"
#include "speculation/drafters/late.h"
#include "speculation/drafters/self.h"
#include "speculation/head_agreement.h"

namespace outrider {
namespace {

std::string name_of(CacheType type) {
  switch (type) {
    case CacheType::f16: return "f16";
    case CacheType::f32: return "f32";
    case CacheType::q8_0: return "q8_0";
  }
  std::abort();
}

// A pass must have room for the root and its drafts; where texts share passes, for those of all
// beside a chunk of a prompt.
int batch_rows(const RuntimeOptions& options) {
  const int rows = options.planner.rows + 1;
  return options.pool ? options.prompt_chunk + options.n_sequences * rows
                      : std::max(options.prompt_chunk, rows);
}

// As its catalogue entry tells it apart.
ModelFile identify_unopened(const std::string& name) {
  const CatalogEntry* const entry = find_in_catalog(name);
  CHECK(entry);
  return {.name = name, .header_hash = entry->sha256, .bytes = entry->bytes};
}

// Two drafters may load one model differently.
std::string loaded_as(const DraftChoice& choice) {
  return choice.kind->name + '=' + choice.value;
}

// Statements of the model's file that are not followed.
void note_warnings(const OpenedModel& opened, const Progress& progress) {
  if (!progress.note) return;
  for (const std::string& line : opened.warnings()) progress.note(line);
}

}  // namespace

Runtime::Runtime(RuntimeOptions options, ChooseFactory choose_factory, Progress progress)
    : options_(std::move(options)),
      choose_factory_(std::move(choose_factory)),
      progress_(std::move(progress)),
      target_model_(open_model(options_.model, {options_.offline, progress_}, options_.text)),
      load_options_{.n_sequences = options_.n_sequences,
                    .shares_texts = options_.pool.has_value(),
                    .batch_rows = batch_rows(options_),
                    .cache_type = options_.cache_type,
                    .n_threads = options_.n_threads} {
  note_warnings(target_model_, progress_);
  if (options_.keeps || options_.reads_profiles) {
    try {
      profiles_.emplace(profile_file(), progress_);
    } catch (const Error&) {
      // No folder to keep them in.
    }
  }
  open_asked_head();
  note_left_out();
  choose_context();
  profile_ = find_profile(options_.drafters);
  if (profile_) load_options_.tuning = profile_->tuning;
  target_ = load(target_model_, load_options_);
  if (head_ && !head_->choice) choose_head_by_measurement();
  if (head_) compare_with_named_agreement();
}

void Runtime::note_left_out() const {
  const Model& target = target_model_.model;
  const bool loads_head = head_ && head_->head.model.checkpoint == target.checkpoint;
  const std::vector<std::string> parts = left_out_texts(target, loads_head);
  if (!parts.empty() && progress_.note)
    progress_.note(
        fmt::format("{}: without its parts for {}", target_model_.name, fmt::join(parts, ", ")));
}

ProfileKey Runtime::profile_key(std::span<const DraftChoice> drafters) {
  ProfileKey key;
  const auto add_file = [&](const OpenedModel& opened) {
    key.files.push_back(identify(opened.name, *opened.model.checkpoint));
  };
  add_file(target_model_);
  for (const DraftChoice& choice : drafters) {
    key.drafters.push_back(choice.kind->name);
    if (choice.kind->uses_target && !choice.kind->copies_target && !choice.kind->runs_head())
      key.settings["layers"] = choice.value.empty()
                                   ? layers_text(self_layers().value_or(std::vector<int>()))
                                   : choice.value;
    if (choice.late)
      key.files.push_back(identify_unopened(choice.value));
    else if (choice.kind->runs_model())
      add_file(open_draft(choice));
    else if (choice.kind->runs_head()) {
      check_head(choice);
      key.files.push_back(identify(head_->name, *head_->head.model.checkpoint));
    }
  }
  key.processor = processor_name();
  key.n_processors = usable_cores();
  key.instruction_set = target_factory().name();
  key.n_threads = options_.n_threads;
  key.cache_type = name_of(options_.cache_type);
  key.settings.insert(options_.drafter_flags.begin(), options_.drafter_flags.end());
  key.settings["rows"] = fmt::format("{}", options_.planner.rows);
  key.settings["depth"] = fmt::format("{}", options_.planner.depth);
  key.settings["width"] = fmt::format("{}", options_.planner.width);
  // An engine for many users times passes over more rows, and also without drafters.
  if (options_.pool) key.settings["texts"] = "many";
  return key;
}

std::optional<Profile> Runtime::find_profile(std::span<const DraftChoice> drafters) {
  if (!profiles_) return {};
  const auto document = profiles_->find(profile_key(drafters), options_.keeps);
  return document ? profile_from(*document) : std::nullopt;
}

void Runtime::keep_profile(const Engine& engine) {
  if (!profiles_ || !options_.keeps || !options_.planner.automatic) return;  // fixed learns nothing
  const Profile profile{.tuning = target_->tuning(), .learned = engine.learned()};
  if (!profile.learned.passes.empty())
    profiles_->keep(profile_key(options_.drafters), json_of(profile));
}

// They belong to the model and the machine, whatever the settings of an answer.
ProfileKey Runtime::self_layers_key() {
  ProfileKey key = profile_key({});
  key.drafters = {"tuned self"};
  key.cache_type.clear();
  key.settings.clear();
  return key;
}

bool Runtime::keep_self_layers(const std::vector<int>& left_out, double speed) {
  try {
    ProfileStore(profile_file(), progress_)
        .keep(self_layers_key(), {{"left_out", left_out}, {"speed", speed}});
  } catch (const Error&) {
    // No folder to keep them in.
  }
  return self_layers() == left_out;
}

std::optional<std::vector<int>> Runtime::self_layers() {
  try {
    const auto document =
        ProfileStore(profile_file(), progress_).find(self_layers_key(), options_.keeps);
    if (!document) return {};
    const auto layers = document->at("left_out").get<std::vector<int>>();
    const int n_layers = target_model_.model.spec.n_layers();
    const bool is_valid =
        std::ranges::is_sorted(layers) && std::ssize(layers) < n_layers &&
        std::ranges::all_of(layers, [&](int layer) { return layer >= 0 && layer < n_layers; });
    return is_valid ? std::optional(layers) : std::nullopt;
  } catch (const Error&) {
    return {};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

const OpenedModel& Runtime::open_draft(const DraftChoice& choice) {
  if (choice.kind->copies_target) return target_model_;
  const std::string& name = choice.value;
  const auto found = draft_models_.find(name);
  if (found != draft_models_.end()) return found->second;
  OpenedModel opened = open_model(name, {options_.offline, progress_}, draft_text_);
  note_warnings(opened, progress_);
  return draft_models_.emplace(name, std::move(opened)).first->second;
}

// The file of the head that a choice names, without a value the target's own.
std::string Runtime::head_name(const DraftChoice& choice) const {
  return choice.value.empty() ? target_model_.model.checkpoint->path : choice.value;
}

// The head that the options' drafters name, to be loaded as it was chosen, or else as its producer
// means it.
void Runtime::open_asked_head() {
  const DraftChoice* found = nullptr;
  for (const DraftChoice& choice : options_.drafters) {
    if (!choice.kind->runs_head()) continue;
    if (found && *found != choice)
      throw Error("{} and {} are two heads, and a model can have one at a time", head_name(*found),
                  head_name(choice));
    found = &choice;
  }
  if (!found) return;
  if (found->value.empty() && !has_prediction_layer(*target_model_.model.checkpoint))
    throw Error(Remedy::draft_model,
                "{0}: {1} has no layer for prediction; write {0}={2} or choose a draft model",
                found->kind->name, target_model_.name, found->kind->value);
  Head head = open_head(head_name(*found), target_model_);
  LoadOptions options =
      found->kind->head_options(head, *target_model_.tokenizer, options_.drafter_flags);
  head_ = {.name = head_name(*found),
           .head = std::move(head),
           .options = std::move(options),
           .tries_types = !options_.drafter_flags.contains("--draft-quantize")};
  if (head_->head.made_for) head_->is_for_this_file = head_->head.made_for->file == target_hash();
  HeadToLoad loaded{.model = head_->head.model, .options = head_->options};
  if (const auto choice = known_head_choice()) {
    if (auto chosen = head_as_chosen(head_->head, head_->options, *choice)) {
      loaded = std::move(*chosen);
      head_->choice = choice;
    }
  }
  // Also for drafts: a block takes slots of its text.
  load_options_.batch_rows = std::max(load_options_.batch_rows, rows_to_measure(loaded.model.spec));
  load_options_.head = std::make_shared<const HeadToLoad>(std::move(loaded));
}

// Throws Error if it asks for a head that is not loaded: heads are loaded with the model.
void Runtime::check_head(const DraftChoice& choice) const {
  if (!choice.kind->runs_head() || (head_ && head_->name == head_name(choice))) return;
  throw Error("{0}={1}: a head is loaded with its model; start with --draft {0}={1}",
              choice.kind->name, head_name(choice));
}

ProfileKey Runtime::head_key() {
  ProfileKey key = profile_key({});
  key.files.push_back(identify(head_->name, *head_->head.model.checkpoint));
  key.drafters = {"measured head"};
  key.cache_type.clear();
  key.settings = {options_.drafter_flags.begin(), options_.drafter_flags.end()};
  return key;
}

// From its own file, if it was made for this one, or from an earlier start.
std::optional<HeadChoice> Runtime::known_head_choice() {
  if (options_.measures_head) return {};
  if (head_->is_for_this_file)
    if (auto named = choice_named_by(head_->head, head_->options, head_->tries_types)) return named;
  const auto document = profiles_ ? profiles_->find(head_key(), options_.keeps) : std::nullopt;
  return document ? head_choice_from(*document) : std::nullopt;
}

// SHA-256 of the target's file. Kept under what tells the file from others, as profiles are, so
// that it is computed once. No measurement: those who keep no profiles read it, too.
std::string Runtime::target_hash() {
  ProfileKey key = profile_key({});
  key.drafters = {"file hash"};
  key.n_threads = 0;
  key.cache_type.clear();
  key.settings.clear();
  try {
    const auto document = ProfileStore(profile_file(), progress_).find(key, options_.keeps);
    if (document) return document->at("sha256").get<std::string>();
  } catch (const Error&) {
    // No folder to keep it in.
  } catch (const nlohmann::json::exception&) {
    // Another kind of document.
  }
  std::string hash =
      sha256_of_files(target_model_.model.checkpoint->files, target_model_.name, progress_);
  if (profiles_ && options_.keeps) profiles_->keep(key, {{"sha256", hash}});
  return hash;
}

// A head that another file of the target's shape was made for, a quantization or a fine-tune, is
// worth a line only if that shows. Other outputs or weights than those that were measured then are
// not compared.
void Runtime::compare_with_named_agreement() const {
  const std::optional<MadeFor>& made_for = head_->head.made_for;
  if (!made_for || !made_for->agreement || head_->is_for_this_file || !progress_.note) return;
  for (const char* flag : {"--draft-quantize", "--draft-vocab"})
    if (options_.drafter_flags.contains(flag)) return;
  const Agreement found = agreement_of(*head_->choice);
  const Agreement& named = *made_for->agreement;
  if (!is_clearly_lower(found, named)) return;
  progress_.note(fmt::format(
      "{}: made for another file ({}): right at {:.0f}% of {} places of a sample text, with that "
      "file at {:.0f}% of {}; train one for this file: outrider train {} -m {}",
      head_->name, printable(made_for->name), 100 * found.share(), found.places,
      100 * named.share(), named.places, head_->head.model.spec.medusa ? "medusa" : "eagle3",
      target_model_.name));
}

std::optional<HeadChoice> Runtime::head_choice() const {
  return head_ ? head_->choice : std::nullopt;
}

void Runtime::choose_head_by_measurement() {
  const auto progress = [&](double share) {
    constexpr double kParts = 1000;
    if (progress_.advance)
      progress_.advance("trying " + head_->name, static_cast<std::uint64_t>(share * kParts),
                        static_cast<std::uint64_t>(kParts));
    return !(progress_.interrupted && progress_.interrupted());
  };
  const HeadChoice choice = choose_head(*target_, *target_model_.tokenizer, head_->head,
                                        head_->options, head_->tries_types, progress);
  const std::string read = choice.reading.empty() ? "" : ", " + choice.reading;
  if (progress_.detail)
    progress_.detail(
        fmt::format("{}: right at {:.0f}% of {} places of a sample text{}, weights in {}",
                    head_->name, 100 * choice.agreement, choice.places, read,
                    choice.type.empty() ? "their file's type" : choice.type));
  head_->choice = choice;
  // Heads that fit are right at half of such places and more; one for another fine-tune at fewer.
  // Of a head that says how often it should be right, compare_with_named_agreement() tells.
  constexpr double kLow = 0.25;
  const bool has_named = head_->head.made_for && head_->head.made_for->agreement;
  const bool is_own = head_->head.model.checkpoint == target_model_.model.checkpoint;
  if (!has_named && choice.places > 0 && choice.agreement < kLow && progress_.note)
    progress_.note(fmt::format(
        "{}{}: right at {:.0f}% of {} places of a sample text, so it brings little{}",
        is_own ? "the layer for prediction of " : "", head_->name, 100 * choice.agreement,
        choice.places, is_own || head_->is_for_this_file ? "" : "; was it made for this model?"));
  if (profiles_ && options_.keeps) profiles_->keep(head_key(), json_of(choice));
}

// Throws Error if a copy that is loaded with these options is not much smaller than the target.
void Runtime::check_copy(const LoadOptions& options) const {
  constexpr double kSmaller = 0.8;
  const auto bytes = [&](const LoadOptions& loaded) {
    return static_cast<double>(target_factory().memory_need(target_model_.model, loaded).weights);
  };
  LoadOptions alone = load_options_;
  alone.head = {};
  if (bytes(options) > kSmaller * bytes(alone))
    throw Error(
        "self: a copy in four bits takes {:.0f}% of the model's memory, so it cannot draft for it; "
        "it is for models of 8 or 16 bits",
        100 * bytes(options) / bytes(alone));
}

LoadOptions Runtime::draft_load_options(const DraftChoice& choice) {
  const OpenedModel& draft = open_draft(choice);
  LoadOptions beside = load_options_;
  beside.head = {};  // the target's own
  LoadOptions options = choice.kind->load_options(
      beside, *target_model_.tokenizer, draft.model.spec, *draft.tokenizer, options_.drafter_flags);
  if (choice.kind->copies_target) check_copy(options);
  return options;
}

// Of the target and the draft models, which hold the same texts and so share context and pages.
Runtime::Need Runtime::need_of_all() {
  struct Planned {
    const Model* model;
    LoadOptions options;
  };
  std::map<std::string, Planned> planned{{"", {&target_model_.model, load_options_}}};
  for (const DraftChoice& choice : options_.drafters)
    if (choice.kind->runs_model() && !choice.late)
      planned[loaded_as(choice)] = {&open_draft(choice).model, draft_load_options(choice)};
  return [this, planned](int context, int n_pages) mutable {
    MemoryNeed sum;
    for (auto& [name, one] : planned) {
      one.options.context = context;
      one.options.n_pages = n_pages;
      const MemoryNeed need = choose_factory_(*one.model).memory_need(*one.model, one.options);
      sum.weights += need.weights;
      sum.cache += need.cache;
      sum.working += need.working;
    }
    return sum;
  };
}

// 0: as many as all texts need.
int Runtime::least_pages(int context) const {
  return options_.pool ? pages_of_one_sequence(context, load_options_.batch_rows) : 0;
}

void Runtime::choose_context() {
  const Need need = need_of_all();
  const auto bytes = [&](int context) {
    const MemoryNeed all = need(context, least_pages(context));
    const bool has_pool = options_.pool && options_.pool->bytes;
    return all.total() +
           (has_pool ? *options_.pool->bytes - std::min(*options_.pool->bytes, all.cache) : 0);
  };
  const int trained = target_model_.model.spec.context_trained;
  const int wanted = options_.context.value_or(std::min(trained, kContextMax));
  const std::uint64_t available = plannable_memory_bytes();
  const int fitting = context_that_fits(bytes, wanted, available);
  const auto alone = need(64, least_pages(64)).total();
  if (fitting == 0 && alone <= available)
    throw Error(Remedy::cache_memory,
                "{} of cache are given, and {} of memory are available, of which the model needs "
                "{}; give it less",
                human_bytes(*options_.pool->bytes), human_bytes(available), human_bytes(alone));
  if (fitting == 0)
    throw Error("{}: needs {} of memory, and {} are available; use a smaller model",
                target_model_.name, human_bytes(bytes(64)), human_bytes(available));
  if (fitting < wanted && options_.context)
    throw Error(Remedy::context,
                "a context of {} does not fit into the {} of memory that are available; the "
                "largest that does is {}",
                wanted, human_bytes(available), fitting);
  load_options_.context = fitting;
  const auto note = [&](const std::string& line) {
    if (progress_.note) progress_.note(line);
  };
  if (fitting < wanted)
    note(fmt::format("context {} instead of {}: {} of memory are available", fitting, wanted,
                     human_bytes(available)));
  if (options_.context && wanted > trained)
    note(fmt::format("context {}: the model was trained for {}, answers beyond it may be poor",
                     wanted, trained));
  if (options_.pool) choose_pages(need, available);
}

void Runtime::choose_pages(const Need& need, std::uint64_t available) {
  int& context = load_options_.context;
  const std::uint64_t page_bytes = need(context, 1).cache;
  const std::uint64_t others = need(context, 1).total() - page_bytes;
  const std::uint64_t bytes = options_.pool->bytes.value_or((available - others) / 2);
  const auto fits = [&](int tokens) { return least_pages(tokens) * page_bytes <= bytes; };
  if (!fits(context)) {
    int longest = context / kPagePositions * kPagePositions;
    while (longest > 0 && !fits(longest)) longest -= kPagePositions;
    if (options_.context || longest == 0)
      throw Error(Remedy::cache_memory,
                  "a context of {} needs {} of cache, and {} are given; give it more or choose a "
                  "shorter context",
                  context, human_bytes(least_pages(context) * page_bytes), human_bytes(bytes));
    context = longest;
  }
  const int all = options_.n_sequences * (context / kPagePositions + 1) + options_.n_sequences +
                  load_options_.batch_rows / kPagePositions + 2;
  load_options_.n_pages = static_cast<int>(std::min<std::uint64_t>(bytes / page_bytes, all));
  if (progress_.note)
    progress_.note(fmt::format(
        "memory: {} of weights, {} of cache for {} tokens ({} for one request, {} requests at "
        "once)",
        human_bytes(need(context, 1).weights), human_bytes(load_options_.n_pages * page_bytes),
        pool_tokens(), context, options_.n_sequences));
}

std::shared_ptr<Backend> Runtime::load(const OpenedModel& opened, const LoadOptions& options) {
  const BackendFactory& factory = choose_factory_(opened.model);
  const std::uint64_t bytes = factory.memory_need(opened.model, options).weights;
  const auto is_interrupted = [&] { return progress_.interrupted && progress_.interrupted(); };
  std::shared_ptr<Backend> backend = factory.load(opened.model, options, [&](double fraction) {
    if (progress_.advance)
      progress_.advance("loading " + opened.name,
                        static_cast<std::uint64_t>(fraction * static_cast<double>(bytes)), bytes);
    return !is_interrupted();
  });
  if (is_interrupted()) throw Error("interrupted");
  if (progress_.detail) {
    const std::string tuning = backend->tuning();
    progress_.detail(fmt::format("{}: {}, {} of weights, context {}, {} threads, {}", opened.name,
                                 opened.model.spec.family, human_bytes(bytes), options.context,
                                 options.n_threads, tuning.empty() ? factory.name() : tuning));
  }
  return backend;
}

std::shared_ptr<EarlierAnswers> Runtime::earlier_answers(std::size_t memory_bytes) const {
  EarlierAnswers::Options options{.memory_bytes = memory_bytes};
  if (options_.keeps && !options_.pool) {  // many users' answers are nobody's to keep
    try {
      const auto store = std::make_shared<HistoryStore>(history_file(), progress_);
      const ModelFile model = identify(target_model_.name, *target_model_.model.checkpoint);
      options.load = [=, n_tokens = target_model_.model.spec.vocabulary](std::size_t n_tokens_max) {
        auto answers = store->answers(model, static_cast<std::int64_t>(n_tokens_max));
        std::erase_if(answers, [&](const EarlierAnswers::Answer& answer) {
          return std::ranges::any_of(answer, [&](Token t) { return t < 0 || t >= n_tokens; });
        });
        return answers;
      };
      options.keep = [=](const EarlierAnswers::Answer& answer) { store->keep(model, answer); };
    } catch (const Error&) {
      // No folder to keep them in.
    }
  }
  return std::make_shared<EarlierAnswers>(std::move(options));
}

std::unique_ptr<Drafter> Runtime::make_drafter(const DraftChoice& choice) {
  check_head(choice);
  DrafterContext context{
      .tokenizer = *target_model_.tokenizer,
      .vocabulary = target_model_.model.spec.vocabulary,
      .flags = options_.drafter_flags,
      .earlier = [this](std::size_t memory_bytes) { return earlier_answers(memory_bytes); },
      .value = choice.value,
      .note = progress_.note,
      .target = target_,
      .tuned_layers = [this] { return self_layers(); },
  };
  if (choice.kind->runs_model()) {
    const OpenedModel& draft = open_draft(choice);
    std::shared_ptr<Backend>& backend = drafts_[loaded_as(choice)];
    if (!backend) backend = load(draft, draft_load_options(choice));
    context.model = backend;
    context.model_tokenizer = draft.tokenizer.get();
    context.model_metadata = &draft.model.checkpoint->metadata;
  }
  return choice.kind->make(context);
}

// Its thread opens and loads the model, and touches nothing of the runtime that changes.
std::unique_ptr<Drafter> Runtime::make_late(const DraftChoice& choice) {
  struct Loaded {
    OpenedModel opened;
    std::shared_ptr<Backend> backend;
  };
  const auto left_out = [this, choice](const std::exception& error) -> std::unique_ptr<Drafter> {
    if (progress_.detail) progress_.detail(fmt::format("{}: {}", choice.value, error.what()));
    return nullptr;
  };
  // Prefetch patterns cannot be compared beside a target at work, whose pattern suits as well.
  LoadOptions beside = load_options_;
  beside.head = {};  // the target's own
  beside.tuning = target_->tuning();
  const auto make = [=, this](const std::atomic<bool>& is_stopped) -> LateDrafter::Finish {
    try {
      const auto loaded = std::make_shared<Loaded>();
      loaded->opened = open_model(choice.value, {.offline = true, .progress = {}}, draft_text_);
      const Model& model = loaded->opened.model;
      const LoadOptions options =
          choice.kind->load_options(beside, *target_model_.tokenizer, model.spec,
                                    *loaded->opened.tokenizer, options_.drafter_flags);
      const BackendFactory& factory = choose_factory_(model);
      const std::uint64_t need = factory.memory_need(model, options).total();
      if (const std::uint64_t available = plannable_memory_bytes(); need > available)
        throw Error("needs {} of memory, and {} are available", human_bytes(need),
                    human_bytes(available));
      loaded->backend = factory.load(model, options, [&](double) { return !is_stopped; });
      return [=, this] {
        draft_models_.insert_or_assign(choice.value, std::move(loaded->opened));
        drafts_[loaded_as(choice)] = std::move(loaded->backend);
        try {
          return make_drafter(choice);
        } catch (const Error& error) {
          return left_out(error);
        }
      };
    } catch (const Error& error) {
      return [=] { return left_out(error); };
    } catch (const std::bad_alloc& error) {
      return [=] { return left_out(error); };
    }
  };
  return std::make_unique<LateDrafter>(choice.kind->name, make);
}

std::vector<std::unique_ptr<Drafter>> Runtime::make_drafters(std::span<const DraftChoice> choices) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  for (const DraftChoice& choice : choices)
    drafters.push_back(choice.late && !drafts_.contains(loaded_as(choice)) ? make_late(choice)
                                                                           : make_drafter(choice));
  return drafters;
}

std::unique_ptr<Engine> Runtime::new_engine(std::span<const DraftChoice> drafters,
                                            const PlannerOptions& planner) {
  return std::make_unique<Engine>(target_, make_drafters(drafters),
                                  EngineOptions{.planner = planner,
                                                .prompt_chunk = options_.prompt_chunk,
                                                .always_times_passes = options_.pool.has_value()});
}

std::unique_ptr<Engine> Runtime::make_engine(std::span<const DraftChoice> drafters,
                                             const PlannerOptions& planner) {
  auto engine = new_engine(drafters, planner);
  if (planner.automatic) engine->measure_costs();
  return engine;
}

std::unique_ptr<Engine> Runtime::make_engine(std::span<const DraftChoice> drafters) {
  auto engine = new_engine(drafters, options_.planner);
  std::optional<Profile> profile;
  if (options_.planner.automatic)
    profile = std::ranges::equal(drafters, options_.drafters) ? profile_ : find_profile(drafters);
  if (!profile || !engine->restore(profile->learned)) engine->measure_costs();
  return engine;
}

MemoryNeed Runtime::target_memory() const {
  return target_factory().memory_need(target_model_.model, target_->options());
}

}  // namespace outrider

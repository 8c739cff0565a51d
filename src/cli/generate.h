// What run, prove and bench share: models loaded as the flags say, sessions on them, and the
// parameters of an answer.

#pragma once

#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/console.h"
#include "runtime/runtime.h"
#include "speculation/verifier.h"

namespace outrider {

// One --draft, understood.
struct DraftSetting {
  std::string text;  // as given
  std::vector<DraftChoice> choices;
  std::string prediction = {};  // the text of "prediction=FILE"
};

// UsageError where the text names no drafters of this version, Error where a file cannot be read.
DraftSetting parse_draft_setting(const std::string& text, const Settings& settings);
// All --draft flags, or `standard` if there is none. "all" stands for off, each drafter alone for
// which everything is there, and auto.
std::vector<DraftSetting> parse_draft_settings(const Settings& settings,
                                               const std::vector<std::string>& standard);
// For --draft auto without -md: adds the draft model that the catalogue names for the target, which
// is loaded during the first answer. If it is not on this machine, a note says how to get it, and
// how much faster answers come with it.
void add_catalog_draft(DraftSetting& draft, const Settings& settings, Console& console);
// The same for a model of the user's own, once it is open: notes name its own layer for prediction
// and the draft models and heads that are known to suit it.
void note_known_drafts(const DraftSetting& draft, const Settings& settings, const Checkpoint& model,
                       Console& console);
// UsageError where a flag of a drafter is given and none of the settings has that drafter, or where
// a drafter asked for by name has nothing to draft from. prompts_bring_predictions: each prompt may
// have its own, so `prediction` needs no FILE.
void check_draft_flags(const Settings& settings, std::span<const DraftSetting> drafts,
                       bool prompts_bring_predictions = false);

struct WorkbenchOptions {
  int n_sequences = 1;  // alive at once, of all sessions together
  // Whether what was measured, learned and, with --history, answered is kept from run to run; not
  // by commands that measure.
  bool keeps = false;
  bool reads_profiles = false;  // engines begin with stored profiles, and keep nothing
  bool measures_head = false;   // as RuntimeOptions has it
  // One pool of pages for all sequences; nullopt: each has room for a whole context.
  std::optional<RuntimeOptions::Pool> pool = {};
};

// A runtime as the flags ask for it, and what answers on it take from the flags.
class Workbench {
 public:
  // Loads settings.model; says on the console what it chose. Memory for the draft models of
  // `drafts` is planned too. UsageError for a model that does not exist or a bias of a token that
  // it does not have. Throws Error like Runtime.
  Workbench(const Machine& machine, const Settings& settings, std::span<const DraftSetting> drafts,
            Console& console, WorkbenchOptions options = {});

  void keep_profile(const Engine& engine) { runtime_.keep_profile(engine); }
  bool keep_self_layers(const std::vector<int>& left_out, double speed) {
    return runtime_.keep_self_layers(left_out, speed);
  }

  // Engines share the models; --steps and --trace watch each.
  std::unique_ptr<Engine> make_engine(const DraftSetting& draft);
  std::unique_ptr<Engine> make_engine(const DraftSetting& draft, const PlannerOptions& planner);
  std::vector<std::unique_ptr<Drafter>> make_drafters(const DraftSetting& draft);
  Session open_session(Engine& engine) const { return runtime_.open_session(engine); }

  const OpenedModel& model() const { return runtime_.target_model(); }
  const Tokenizer& tokenizer() const { return *model().tokenizer; }
  int context() const { return target().options().context; }
  int n_threads() const { return target().options().n_threads; }
  Backend& target() const { return runtime_.target(); }
  std::optional<HeadChoice> head_choice() const { return runtime_.head_choice(); }
  MemoryNeed memory() const { return runtime_.target_memory(); }
  int pool_tokens() const { return runtime_.pool_tokens(); }
  std::string device_name() const { return runtime_.target_factory().name(); }

  // The flags' parameters, the model's own where flags are silent. The seed as given, or a random
  // one.
  const SamplingParams& sampling() const { return sampling_; }
  StopParams stop(int standard_predict) const;
  // A request for an answer to this prompt, which is expected to repeat `prediction`, or if that is
  // empty the setting's.
  Request request(std::vector<Token> prompt, const DraftSetting& draft, int standard_predict,
                  const std::string& prediction = {}) const;
  std::uint64_t seed() const { return seed_; }
  const Verifier& verifier() const { return *verifier_; }
  // Counts an answer's drafts; tells the console, once, of a draft model that hardly fits.
  void count_drafts(const Completion& answer);
  // Tells the console a seed that was drawn, if choices are random, and a verifier that is lossy.
  void note_sampling() const;

  // The tokens of a single prompt: with --raw or without a chat template those of the text as it
  // stands, else those of a conversation of --system-prompt and the prompt. Throws Error if it is
  // empty.
  std::vector<Token> prompt_tokens(const Session& session, const std::string& prompt) const;
  // Whether a prompt goes through the chat template.
  bool uses_template() const { return !settings_.raw && model().chat_template; }
  std::vector<Message> conversation() const;  // with the system prompt, if there is one

 private:
  SamplingParams read_sampling() const;
  void show_step(const std::string& draft, const StepReport& report);

  const Settings& settings_;
  Console& console_;
  std::uint64_t seed_;
  const std::shared_ptr<const Verifier> verifier_;
  std::ofstream trace_;                           // of --trace
  std::map<std::string, DrafterCounts> drafted_;  // of all answers
  bool is_misaligned_ = false;                    // the console was told
  Runtime runtime_;
  SamplingParams sampling_;
};

// What to say of a drafter by what it has guessed so far; nothing: it fits, has guessed little, or
// runs no model.
std::optional<std::string> misalignment(std::string_view drafter, const DrafterCounts& counts);

// part / whole; 0 without a whole.
double ratio(long part, long whole);

// Answers together.
struct AnswerTotals {
  double prompt_ms = 0;
  double generation_ms = 0;  // of `timed_tokens`: the first tokens come with the prompt
  long timed_tokens = 0;
  Counters counters;

  AnswerTotals& operator+=(const AnswerTotals& other);

  double whole_ms() const { return prompt_ms + generation_ms; }

  double tokens_per_second() const;     // of generation; 0 if there was none
  double tokens_per_pass() const;       // passes of the target; 0 if there was none
  double acceptance() const;            // share of the drafted tokens; 0 if there were none
  double drafting_share() const;        // of the whole time; 0 if there was none
  std::string acceptance_text() const;  // "41%", "-" if there were none
};
AnswerTotals totals_of(const Completion& answer);
// How many times as fast as `first` these answers came, prefill included, also that of drafters.
double whole_ratio(const AnswerTotals& first, const AnswerTotals& totals);

}  // namespace outrider

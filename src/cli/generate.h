// What run, prove and bench share: models loaded as the flags say, sessions on them, and the
// parameters of an answer.

#pragma once

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/model_file.h"
#include "engine/session.h"
#include "speculation/drafters/registry.h"

namespace outrider {

// One --draft, understood.
struct DraftSetting {
  std::string text;  // as given
  std::vector<DraftChoice> choices;
};

// UsageError where the text names no drafters of this version.
DraftSetting parse_draft_setting(const std::string& text, const Settings& settings);
// All --draft flags, or `standard` if there is none.
std::vector<DraftSetting> parse_draft_settings(const Settings& settings,
                                               const std::vector<std::string>& standard);
// UsageError where a flag speaks of a draft model and none of the settings has one.
void check_draft_flags(const Settings& settings, std::span<const DraftSetting> drafts);

// The target, loaded once, draft models too, and any number of engines on them. Only one session
// may hold a text at a time: reset() it before another completes.
class Workbench {
 public:
  // Opens and loads settings.model with the context that flags and memory allow; says on the
  // console what it chose. Memory for the draft models of `drafts` is planned too. Throws Error
  // before loading if an explicit context cannot fit.
  Workbench(const Device& device, const Settings& settings, std::span<const DraftSetting> drafts,
            Console& console);

  // Engines share the models; --steps and --trace watch each.
  std::unique_ptr<Engine> make_engine(const DraftSetting& draft);
  std::vector<std::unique_ptr<Drafter>> drafters(const DraftSetting& draft);
  Session open_session(Engine& engine) const {
    return Session(engine, tokenizer(), file_.chat_template.get());
  }

  const ModelFile& file() const { return file_; }
  const Tokenizer& tokenizer() const { return *file_.tokenizer; }
  int context() const { return options_.context; }
  int n_threads() const { return options_.n_threads; }
  const Model& model() const { return file_.model; }
  const std::shared_ptr<Backend>& target() const { return target_; }

  // The flags' parameters, the model's own where flags are silent. Seed as given, or `random_seed`.
  SamplingParams sampling() const;
  StopParams stop(int standard_predict) const;
  std::uint64_t seed() const { return seed_; }
  bool seed_is_random() const { return !settings_.seed; }

  // A lone prompt as tokens: --raw as it stands, else a conversation of --system-prompt and this,
  // or without a template the text as it stands. Throws Error if it is empty or too long for the
  // context.
  std::vector<Token> prompt_tokens(const Session& session, const std::string& prompt) const;
  // Whether a prompt goes through the chat template.
  bool uses_template() const { return !settings_.raw && file_.chat_template; }
  std::vector<Message> conversation() const;  // with the system prompt, if there is one

 private:
  ModelFile& draft_file(const std::string& name);
  std::shared_ptr<Backend> load(const ModelFile& file, const LoadOptions& options);
  LoadOptions draft_options(const ModelFile& draft) const;
  void choose_context();
  void show_step(const StepReport& report);

  const Device& device_;
  const Settings& settings_;
  Console& console_;
  std::uint64_t seed_;
  LoadOptions options_;
  ModelFile file_;
  std::map<std::string, ModelFile> draft_files_;
  std::shared_ptr<Backend> target_;
  std::map<std::string, std::shared_ptr<Backend>> draft_backends_;
  std::ofstream trace_;  // of --trace
};

// "lookup 12 of 40 accepted", for each drafter that proposed anything; empty without.
std::string drafts_text(const Completion& completion);
// Tokens that one pass of the target brought, on average.
double tokens_per_pass(const Counters& counters);

}  // namespace outrider

#include <chrono>

#include "cli/chat.h"
#include "cli/generate.h"
#include "cli/json.h"
#include "cli/reliability.h"
#include "cli/signals.h"
#include "cli/text_input.h"
#include "cli/version.h"

namespace outrider {
namespace {

Json answer_json(const Completion& answer, const Workbench& bench, double load_ms) {
  Json drafts = Json::object();
  for (const auto& draft : answer.draft) {
    drafts[draft.name] = {{"proposed", draft.counts.proposed}, {"accepted", draft.counts.accepted}};
  }
  Json reason;
  if (answer.finish_reason) reason = name(*answer.finish_reason);
  Json json = {{"schema", 1},
               {"version", version()},
               {"model", bench.model().name},
               {"text", answer.text},
               {"tokens", answer.tokens},
               {"finish_reason", reason},
               {"seed", bench.seed()},
               {"verify", bench.verifier().name()},
               {"usage",
                {{"prompt_tokens", answer.prompt_tokens},
                 {"completion_tokens", answer.completion_tokens},
                 {"total_tokens", answer.prompt_tokens + answer.completion_tokens}}},
               {"timings",
                {{"load_ms", load_ms},
                 {"prompt_ms", answer.prompt_ms},
                 {"generation_ms", answer.generation_ms},
                 {"whole_ms", answer.whole_ms()},
                 {"tokens_per_second", answer.tokens_per_second()},
                 {"tokens_per_pass", totals_of(answer).tokens_per_pass()}}},
               {"draft", drafts}};
  if (bench.verifier().guarantee() == Guarantee::lossy) json["lossy"] = true;
  return json;
}

// A draft model is loaded beside an answer for which -n allows so many tokens, or while the first
// message of a chat is typed.
constexpr int kTokensThatRepayLoading = 1024;

int run(const Machine& machine, const Settings& settings) {
  using Clock = std::chrono::steady_clock;
  DraftSetting draft = parse_draft_settings(settings, {"auto"}).back();
  const auto prompt = single_prompt(settings);
  if (!prompt && (settings.json || settings.raw)) {
    throw UsageError("{}: needs a prompt, by -p or -f", settings.json ? "--json" : "--raw");
  }
  if (prompt) check_draft_flags(settings, {&draft, 1});  // a chat's /draft may ask for one later

  Console console(settings);
  const bool draft_repays = !prompt || settings.predict.value_or(0) >= kTokensThatRepayLoading;
  if (draft_repays) add_catalog_draft(draft, settings, console);
  const Clock::time_point start = Clock::now();
  Workbench bench(machine, settings, {&draft, 1}, console, {.keeps = true});
  if (draft_repays) note_known_drafts(draft, settings, *bench.model().model.checkpoint, console);
  if (!prompt) return chat(bench, draft, settings, console);

  const std::unique_ptr<Engine> engine = bench.make_engine(draft);
  Session session = bench.open_session(*engine);
  const double load_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  const std::vector<Token> tokens = bench.prompt_tokens(session, *prompt);
  if (!settings.raw && !bench.model().chat_template) {
    console.note(fmt::format("{} has no chat template: it continues the prompt as it is",
                             bench.model().name));
  }
  bench.note_sampling();

  AnswerPrinter printer(settings, console);
  const Completion answer =
      session.complete(bench.request(tokens, draft, -1),
                       settings.json ? ShowText{} : printer.show(), &interrupt_flag());
  bench.keep_profile(*engine);
  bench.count_drafts(answer);
  if (settings.json) {
    Json json = answer_json(answer, bench, load_ms);
    json["reliability"] = reliability_json(engine->planner_report().reliability);
    write_json(json);
  } else {
    printer.end_line();
    console.note(answer_summary(answer));
  }
  stop_if_interrupted();
  return kDone;
}

}  // namespace

Command run_command() {
  return {
      .name = "run",
      .summary = "answer a prompt, or chat",
      .description =
          "Answers the prompt of -p or -f, using the model's chat template; with --raw, continues "
          "the prompt instead. Without a prompt it starts a chat: /help lists its commands, "
          "Ctrl-C stops an answer, Ctrl-D ends the chat.",
      .flag_set = FlagSet::generating,
      .flags = {"--prompt", "--file"},
      .run = run};
}

}  // namespace outrider

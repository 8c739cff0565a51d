#include <algorithm>

#include "base/stopwatch.h"
#include "cli/certificate.h"
#include "cli/chat.h"
#include "cli/generate.h"
#include "cli/json.h"
#include "cli/signals.h"
#include "cli/text_input.h"
#include "speculation/verifier.h"

namespace outrider {
namespace {

constexpr int kProvePredict = 256;

// One --draft on all prompts.
struct Tally {
  const DraftSetting* draft;
  std::unique_ptr<Engine> engine;
  AnswerTotals totals;
  int different = 0;             // prompts
  std::string first_difference;  // a line
};

// None: the certificate is asked for.
std::vector<BenchPrompt> prompts_of(const Settings& settings) {
  std::vector<BenchPrompt> prompts;
  if (settings.prompts_file) {
    if (!settings.prompt.empty() || settings.prompt_file) {
      throw UsageError("--prompts: takes neither -p nor -f beside it");
    }
    prompts = parse_prompts(read_text(*settings.prompts_file), *settings.prompts_file);
  } else if (settings.prompt.size() > 1 && !settings.prompt_file) {
    for (const std::string& prompt : settings.prompt) prompts.push_back({.turns = {prompt}});
  } else if (const auto prompt = single_prompt(settings)) {
    prompts.push_back({.turns = {*prompt}});
  }
  return prompts;
}

std::string quoted(const Tokenizer& tokenizer, Token token) {
  return fmt::format("{} {}", token, json_text(tokenizer.bytes(token, true)));
}

// Where two answers differ first, or nothing.
std::optional<std::string> difference(const Completion& plain, const std::string& plain_name,
                                      const Completion& other, const std::string& other_name,
                                      const Tokenizer& tokenizer) {
  const auto [a, b] = std::ranges::mismatch(plain.tokens, other.tokens);
  const auto said = [&](const std::vector<Token>& tokens, auto place) {
    return place == tokens.end() ? "ends" : "says " + quoted(tokenizer, *place);
  };
  if (a == plain.tokens.end() && b == other.tokens.end()) {
    if (plain.text == other.text && plain.finish_reason == other.finish_reason) return {};
    return fmt::format("{} and {} give the same tokens, but another text or end", plain_name,
                       other_name);
  }
  return fmt::format("token {}: {} {}, {} {}", a - plain.tokens.begin(), plain_name,
                     said(plain.tokens, a), other_name, said(other.tokens, b));
}

std::string verdict(const Tally& tally, std::size_t n_prompts) {
  if (!tally.different) return "identical";
  return n_prompts == 1 ? "DIFFERENT"
                        : fmt::format("{} of {} DIFFERENT", tally.different, n_prompts);
}

Json report_json(const std::vector<Tally>& tallies, const Workbench& bench, std::size_t n_prompts) {
  Json settings = Json::array();
  for (const Tally& tally : tallies) {
    Json difference;
    if (tally.different) difference = tally.first_difference;
    settings.push_back({{"draft", tally.draft->text},
                        {"tokens", tally.totals.counters.emitted},
                        {"tokens_per_second", tally.totals.tokens_per_second()},
                        {"whole_ms", tally.totals.whole_ms()},
                        {"whole_ratio", whole_ratio(tallies[0].totals, tally.totals)},
                        {"drafted", tally.totals.counters.drafted},
                        {"accepted", tally.totals.counters.accepted},
                        {"tokens_per_pass", tally.totals.tokens_per_pass()},
                        {"identical", tally.different == 0},
                        {"different_prompts", tally.different},
                        {"first_difference", difference}});
  }
  const bool identical = std::ranges::all_of(tallies, [](const Tally& t) { return !t.different; });
  return {{"schema", 1},          {"model", bench.model().name}, {"seed", bench.seed()},
          {"prompts", n_prompts}, {"identical", identical},      {"settings", settings}};
}

std::string report_text(const std::vector<Tally>& tallies, std::size_t n_prompts) {
  Table table(
      {"draft", "tokens", "tokens/s", "speed", "whole", "accepted", "tokens/pass", "tokens are"},
      "lrrrrrrl");
  const double plain = tallies[0].totals.tokens_per_second();
  std::string remarks;
  for (const Tally& tally : tallies) {
    const bool is_first = &tally == &tallies[0];
    const AnswerTotals& totals = tally.totals;
    const double speed = plain > 0 ? totals.tokens_per_second() / plain : 0;
    const double whole = whole_ratio(tallies[0].totals, totals);
    table.add({tally.draft->text, fmt::format("{}", totals.counters.emitted),
               fmt::format("{:.1f}", totals.tokens_per_second()),
               speed > 0 ? fmt::format("{:.2f}x", speed) : "-", fmt::format("{:.2f}x", whole),
               totals.acceptance_text(), fmt::format("{:.2f}", totals.tokens_per_pass()),
               is_first ? "the reference" : verdict(tally, n_prompts)});
    if (!is_first && whole < 0.995) {  // or the table shows 1.00
      remarks +=
          fmt::format("{} is slower than {} here\n", tally.draft->text, tallies[0].draft->text);
    }
    if (tally.different) remarks += tally.first_difference + "\n";
  }
  std::string text = table.text(output_width());
  if (!remarks.empty()) text += remarks;
  return text;
}

std::string_view promise(Guarantee guarantee) {
  switch (guarantee) {
    case Guarantee::same_text: return "the text of plain decoding, whatever else runs";
    case Guarantee::same_distribution: return "the distribution of plain decoding";
    case Guarantee::lossy:
      return "lossy: it changes the distribution, and there is nothing to prove";
  }
  return "";
}

int prove_guarantee(const Machine& machine, const Settings& settings) {
  // The certificate brings a prediction for each of its prompts.
  if (!settings.draft.empty())
    check_draft_flags(settings, parse_draft_settings(settings, {}), true);
  if (settings.typical_flag && settings.verifier != "typical")
    throw UsageError("{}: needs --verify typical", *settings.typical_flag);
  Console console(settings);
  const Stopwatch watch;
  const std::vector<CertificateCheck> checks = certificate(machine, settings, console);
  console.clear();
  const auto n_passed = std::ranges::count(checks, true, &CertificateCheck::passed);
  const bool passed = n_passed == std::ssize(checks);
  const auto verifier = make_verifier(settings.verifier, settings.typical_acceptance);
  if (settings.json) {
    Json list = Json::array();
    for (const CertificateCheck& check : checks) {
      list.push_back({{"check", check.what},
                      {"passed", check.passed},
                      {"result", check.result},
                      {"tokens", check.tokens},
                      {"accepted", check.accepted}});
      if (check.p_value) list.back()["p_value"] = *check.p_value;
    }
    write_json({{"schema", 1},
                {"model", settings.model},
                {"verify", verifier->name()},
                {"promise", promise(verifier->guarantee())},
                {"passed", passed},
                {"seconds", watch.ms() / 1000},
                {"checks", list}});
  } else {
    Table table({"check", "tokens", "accepted drafts", "result"}, "lrrl");
    for (const CertificateCheck& check : checks)
      table.add({check.what, fmt::format("{}", check.tokens), fmt::format("{}", check.accepted),
                 check.result});
    std::string text = checks.empty() ? "" : table.text(output_width());
    text += fmt::format("{} --verify {}: {}", settings.model, verifier->name(),
                        promise(verifier->guarantee()));
    if (!checks.empty())
      text += fmt::format("; {} of {} checks passed in {:.0f} s", n_passed, checks.size(),
                          watch.ms() / 1000);
    write_output(text + "\n");
  }
  return passed ? kDone : kFailed;
}

int prove(const Machine& machine, const Settings& settings) {
  const std::vector<BenchPrompt> prompts = prompts_of(settings);
  if (prompts.empty()) return prove_guarantee(machine, settings);
  if (settings.full) throw UsageError("--full: takes no prompt beside it");
  if (settings.verifier != kVerifierNames[0])
    throw UsageError(
        "--verify {}: its text is another than plain decoding's; prove it without a prompt",
        settings.verifier);
  const std::vector<DraftSetting> drafts = parse_draft_settings(settings, {"off", "auto"});
  if (drafts.size() < 2) {
    throw UsageError("--draft {}: prove compares; give a second --draft", drafts[0].text);
  }
  check_draft_flags(settings, drafts);

  Console console(settings);
  Workbench bench(machine, settings, drafts, console, {.reads_profiles = settings.stored_profile});
  bench.note_sampling();
  std::vector<Tally> tallies(drafts.size());
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    tallies[i].draft = &drafts[i];
    tallies[i].engine = bench.make_engine(drafts[i]);
  }

  // The answers to a single prompt are shown; of several prompts, the table alone.
  const bool streams = prompts.size() == 1 && !settings.json && !settings.quiet;
  AnswerPrinter printer(settings, console);
  const Palette palette = output_palette(settings.color);
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    std::optional<Completion> plain;
    for (Tally& tally : tallies) {
      if (streams) {
        write_output(
            fmt::format("{}--draft {}{}\n", palette.dim, tally.draft->text, palette.reset));
      } else {
        console.advance(fmt::format("prompt {}, --draft {}", p + 1, tally.draft->text),
                        static_cast<double>(p) / static_cast<double>(prompts.size()));
      }
      tally.engine->forget_ended_sequences();
      Session session = bench.open_session(*tally.engine);
      const Completion answer =
          session.complete(bench.request(bench.prompt_tokens(session, prompts[p].turns[0]),
                                         *tally.draft, kProvePredict, prompts[p].prediction),
                           streams ? printer.show() : ShowText{}, &interrupt_flag());
      printer.end_line();
      stop_if_interrupted();
      if (streams) write_output("\n");
      tally.totals += totals_of(answer);
      if (!plain) {
        plain = answer;
      } else if (const auto where = difference(*plain, tallies[0].draft->text, answer,
                                               tally.draft->text, bench.tokenizer())) {
        if (!tally.different++) {
          tally.first_difference =
              prompts.size() == 1 ? *where : fmt::format("prompt {}, {}", p + 1, *where);
        }
      }
    }
  }
  console.clear();

  if (settings.json) {
    write_json(report_json(tallies, bench, prompts.size()));
  } else {
    write_output(report_text(tallies, prompts.size()));
  }
  return std::ranges::any_of(tallies, [](const Tally& t) { return t.different > 0; }) ? kFailed
                                                                                      : kDone;
}

}  // namespace

Command prove_command() {
  return {
      .name = "prove",
      .summary =
          "show that speculation changes speed and nothing else, or what a verifier promises",
      .description =
          "Answers the same prompts once for each --draft (off and auto if none is given), "
          "compares the token sequences and measures their speed. Without a prompt it tries what "
          "the verifier (--verify) guarantees: coupled, the same tokens from the same logits "
          "under every drafter, tree size, batch, number of threads and instruction set, and with "
          "prompts from the cache and preempted; rejection, the target's exact distribution by "
          "chi-square tests. Exit status 1 if anything differs.",
      .flag_set = FlagSet::generating,
      .flags = {"--prompt", "--file", "--prompts", "--stored-profile", "--full"},
      .run = prove};
}

}  // namespace outrider

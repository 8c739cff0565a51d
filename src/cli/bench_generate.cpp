#include <map>

#include "cli/generate.h"
#include "cli/json.h"
#include "cli/signals.h"
#include "cli/spread.h"
#include "cli/text_input.h"

namespace outrider {
namespace {

constexpr int kPredict = 256;

// One --draft on one prompt, all turns together.
struct Measured {
  std::vector<Token> tokens;
  AnswerTotals totals;
};

Measured answer(Workbench& bench, Engine& engine, const BenchPrompt& prompt) {
  Session session = bench.open_session(engine);
  Measured measured;
  std::vector<Message> messages = bench.conversation();
  std::string raw;
  for (const std::string& turn : prompt.turns) {
    std::vector<Token> tokens;
    if (bench.uses_template()) {
      messages.push_back({"user", turn});
      tokens = session.tokens_of(messages);
    } else {
      raw += turn;
      tokens = bench.prompt_tokens(session, raw);
    }
    const Completion completion =
        session.complete(tokens, bench.sampling(), bench.stop(kPredict), {}, &interrupt_flag());
    stop_if_interrupted();
    measured.tokens.insert(measured.tokens.end(), completion.tokens.begin(),
                           completion.tokens.end());
    measured.totals += totals_of(completion);
    messages.push_back({"assistant", completion.text});
    raw += completion.text;
  }
  return measured;
}

// One --draft on one group: a value per prompt and round.
struct Cell {
  std::vector<double> tokens_per_second, ratios;  // ratios: to the first --draft on the same prompt
  AnswerTotals totals;
  int different = 0;
};

int bench_generate(const Machine& machine, const Settings& settings) {
  if (!settings.prompts_file) throw UsageError("bench generate: needs --prompts FILE");
  const std::vector<DraftSetting> drafts = parse_draft_settings(settings, {"off", "auto"});
  check_draft_flags(settings, drafts);
  const std::vector<BenchPrompt> prompts =
      parse_prompts(read_text(*settings.prompts_file), *settings.prompts_file);

  Console console(settings);
  Workbench bench(machine, settings, drafts, console);
  bench.note_seed();
  std::vector<std::unique_ptr<Engine>> engines;
  for (const DraftSetting& draft : drafts) engines.push_back(bench.make_engine(draft));

  const std::size_t n = drafts.size();
  std::vector<std::string> groups;  // in order of their first prompt
  std::map<std::string, std::vector<Cell>> cells;
  std::vector<Cell> all(n);
  Json details = Json::array();
  const std::size_t total = prompts.size() * static_cast<std::size_t>(settings.repetitions);
  for (std::size_t i = 0; i < total; ++i) {
    const BenchPrompt& prompt = prompts[i % prompts.size()];
    if (!cells.contains(prompt.group)) {
      groups.push_back(prompt.group);
      cells[prompt.group].resize(n);
    }
    std::vector<Measured> measured(n);
    // They take turns prompt by prompt, and each begins in turn: a slow minute affects all alike.
    for (std::size_t k = 0; k < n; ++k) {
      const std::size_t s = (i + k) % n;
      console.advance(fmt::format("{} {}, --draft {}", prompt.group, prompt.id, drafts[s].text),
                      static_cast<double>(i * n + k) / static_cast<double>(total * n));
      measured[s] = answer(bench, *engines[s], prompt);
    }
    for (std::size_t s = 0; s < n; ++s) {
      const AnswerTotals& totals = measured[s].totals;
      const double speed = totals.tokens_per_second();
      const double plain = measured[0].totals.tokens_per_second();
      const bool same = measured[s].tokens == measured[0].tokens;
      for (Cell* cell : {&cells[prompt.group][s], &all[s]}) {
        // The speed of a single token is unknown: it comes with the prompt.
        if (speed > 0) cell->tokens_per_second.push_back(speed);
        if (speed > 0 && plain > 0) cell->ratios.push_back(speed / plain);
        cell->totals += totals;
        cell->different += !same;
      }
      details.push_back({{"id", prompt.id},
                         {"group", prompt.group},
                         {"draft", drafts[s].text},
                         {"tokens", measured[s].tokens.size()},
                         {"prompt_ms", totals.prompt_ms},
                         {"generation_ms", totals.generation_ms},
                         {"tokens_per_second", speed},
                         {"drafted", totals.drafted},
                         {"accepted", totals.accepted},
                         {"identical", same}});
    }
  }
  console.clear();

  Json summary = Json::array();
  Table table({"group", "draft", "tokens/s", "speed", "accepted", "tokens/pass", "identical"},
              "llrrrrl");
  bool identical = true;
  const auto report = [&](const std::string& group, const std::vector<Cell>& line) {
    for (std::size_t s = 0; s < n; ++s) {
      const Cell& cell = line[s];
      const AnswerTotals& totals = cell.totals;
      const double speed = spread(cell.tokens_per_second).median;
      const double ratio = spread(cell.ratios).median;
      identical = identical && cell.different == 0;
      table.add({group, drafts[s].text, fmt::format("{:.1f}", speed),
                 cell.ratios.empty() ? "-" : fmt::format("{:.2f}x", ratio),
                 totals.acceptance_text(), fmt::format("{:.2f}", totals.tokens_per_pass()),
                 cell.different ? fmt::format("{} NOT", cell.different) : "yes"});
      summary.push_back({{"group", group},
                         {"draft", drafts[s].text},
                         {"prompts", cell.tokens_per_second.size()},
                         {"tokens_per_second", speed},
                         {"ratio", ratio},
                         {"acceptance", totals.acceptance()},
                         {"tokens_per_pass", totals.tokens_per_pass()},
                         {"different", cell.different}});
    }
  };
  for (const std::string& group : groups) report(group, cells[group]);
  if (groups.size() > 1) report("together", all);

  if (settings.json) {
    write_json({{"schema", 1},
                {"model", bench.model().name},
                {"threads", bench.n_threads()},
                {"seed", bench.seed()},
                {"identical", identical},
                {"groups", summary},
                {"prompts", details}});
  } else {
    write_output(table.text(output_width()));
  }
  return identical ? kDone : kFailed;
}

}  // namespace

Command bench_generate_command() {
  return {
      .name = "bench generate",
      .summary = "measure generation over a file of prompts",
      .description =
          "Answers every prompt of --prompts with every --draft in turn, and prints medians and "
          "ratios per group of prompts.",
      .flag_set = FlagSet::generating,
      .flags = {"--prompts", "--repeat"},
      .run = bench_generate};
}

}  // namespace outrider

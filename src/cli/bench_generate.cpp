#include <algorithm>
#include <map>

#include "cli/generate.h"
#include "cli/json.h"
#include "cli/signals.h"
#include "cli/text_input.h"

namespace outrider {
namespace {

constexpr int kPredict = 256;

// One --draft on one prompt, all turns together.
struct Measured {
  std::vector<Token> tokens;
  int timed_tokens = 0;
  double prompt_ms = 0, generation_ms = 0;
  Counters counters;

  double tokens_per_second() const {
    return generation_ms > 0 ? 1000 * timed_tokens / generation_ms : 0;
  }
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

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
    measured.timed_tokens += completion.completion_tokens - completion.first_tokens;
    measured.prompt_ms += completion.prompt_ms;
    measured.generation_ms += completion.generation_ms;
    measured.counters.drafted += completion.counters.drafted;
    measured.counters.accepted += completion.counters.accepted;
    measured.counters.emitted += completion.counters.emitted;
    messages.push_back({"assistant", completion.text});
    raw += completion.text;
  }
  return measured;
}

// One --draft on one group: a value per prompt and round.
struct Cell {
  std::vector<double> tokens_per_second, ratios;  // ratios: to the first --draft on the same prompt
  Counters counters;
  int different = 0;
};

int bench_generate(const Device& device, const Settings& settings) {
  if (!settings.prompts_file) throw UsageError("bench generate: needs --prompts FILE");
  const std::vector<DraftSetting> drafts = parse_draft_settings(settings, {"off", "auto"});
  check_draft_flags(settings, drafts);
  const std::vector<BenchPrompt> prompts =
      parse_prompts(read_text(*settings.prompts_file), *settings.prompts_file);

  Console console(settings);
  Workbench bench(device, settings, drafts, console);
  if (bench.seed_is_random() && bench.sampling().filters.temperature > 0) {
    console.note(fmt::format("seed {}", bench.seed()));
  }
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
      const double speed = measured[s].tokens_per_second();
      const double plain = measured[0].tokens_per_second();
      const bool same = measured[s].tokens == measured[0].tokens;
      for (Cell* cell : {&cells[prompt.group][s], &all[s]}) {
        // The speed of a single token is unknown: it comes with the prompt.
        if (speed > 0) cell->tokens_per_second.push_back(speed);
        if (speed > 0 && plain > 0) cell->ratios.push_back(speed / plain);
        cell->counters.drafted += measured[s].counters.drafted;
        cell->counters.accepted += measured[s].counters.accepted;
        cell->counters.emitted += measured[s].counters.emitted;
        cell->different += !same;
      }
      details.push_back({{"id", prompt.id},
                         {"group", prompt.group},
                         {"draft", drafts[s].text},
                         {"tokens", measured[s].tokens.size()},
                         {"prompt_ms", measured[s].prompt_ms},
                         {"generation_ms", measured[s].generation_ms},
                         {"tokens_per_second", speed},
                         {"drafted", measured[s].counters.drafted},
                         {"accepted", measured[s].counters.accepted},
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
      const std::size_t count = cell.tokens_per_second.size();
      const double accepted = cell.counters.drafted ? static_cast<double>(cell.counters.accepted) /
                                                          static_cast<double>(cell.counters.drafted)
                                                    : 0;
      identical = identical && cell.different == 0;
      table.add({group, drafts[s].text, fmt::format("{:.1f}", median(cell.tokens_per_second)),
                 cell.ratios.empty() ? "-" : fmt::format("{:.2f}x", median(cell.ratios)),
                 cell.counters.drafted ? fmt::format("{:.0f}%", 100 * accepted) : "-",
                 fmt::format("{:.2f}", tokens_per_pass(cell.counters)),
                 cell.different ? fmt::format("{} NOT", cell.different) : "yes"});
      summary.push_back({{"group", group},
                         {"draft", drafts[s].text},
                         {"prompts", count},
                         {"tokens_per_second", median(cell.tokens_per_second)},
                         {"ratio", median(cell.ratios)},
                         {"acceptance", accepted},
                         {"tokens_per_pass", tokens_per_pass(cell.counters)},
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

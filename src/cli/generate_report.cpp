#include "cli/generate_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/spread.h"

namespace outrider {
namespace {

// A value per round of each prompt.
using ByPrompt = std::map<std::size_t, std::vector<double>>;

// One --draft on one group. Ratios are to the first --draft on the same prompt and round.
struct Cell {
  std::string group, draft;
  bool is_first;  // --draft
  std::vector<double> tokens_per_second = {};
  ByPrompt ratios = {}, whole_ratios = {};
  AnswerTotals totals = {};
  int n_answers = 0, n_different = 0;
};

// Group by group in the order of their first prompts, then all together if there are several.
std::vector<Cell> cells_of(const GenerateMeasurements& measured) {
  std::vector<std::string> groups;
  for (const MeasuredPrompt& prompt : measured.prompts)
    if (std::ranges::find(groups, prompt.group) == groups.end()) groups.push_back(prompt.group);
  const std::size_t n_drafts = measured.drafts.size();
  std::vector<Cell> cells;
  const auto add_cells = [&](const std::string& group) {
    for (std::size_t d = 0; d < n_drafts; ++d)
      cells.push_back({.group = group, .draft = measured.drafts[d], .is_first = d == 0});
  };
  for (const std::string& group : groups) add_cells(group);
  if (groups.size() > 1) add_cells("together");

  for (const MeasuredPrompt& prompt : measured.prompts) {
    const auto group =
        static_cast<std::size_t>(std::ranges::find(groups, prompt.group) - groups.begin());
    const AnswerTotals& first = prompt.answers[0].totals;
    for (std::size_t d = 0; d < n_drafts; ++d) {
      const AnswerTotals& totals = prompt.answers[d].totals;
      const double speed = totals.tokens_per_second(), first_speed = first.tokens_per_second();
      const auto add_to = [&](Cell& cell) {
        // The speed of a single token is unknown: it comes with the prompt.
        if (speed > 0) cell.tokens_per_second.push_back(speed);
        if (speed > 0 && first_speed > 0) cell.ratios[prompt.prompt].push_back(speed / first_speed);
        cell.whole_ratios[prompt.prompt].push_back(whole_ratio(first, totals));
        cell.totals += totals;
        ++cell.n_answers;
        cell.n_different += !prompt.answers[d].identical;
      };
      add_to(cells[group * n_drafts + d]);
      if (groups.size() > 1) add_to(cells[groups.size() * n_drafts + d]);
    }
  }
  return cells;
}

double t1_ms(const GenerateMeasurements& measured) {
  return spread(measured.passes.at(1)).median;
}

// What a pass gives at most: the number of rows whose tokens, all of them right, come fastest.
struct Ceiling {
  int rows = 1;
  double ms = 0;
  double speed = 1;  // times plain decoding
};

Ceiling ceiling_of(const GenerateMeasurements& measured) {
  const double t1 = t1_ms(measured);
  Ceiling ceiling{.ms = t1};
  for (const auto& [rows, samples] : measured.passes) {
    const double ms = spread(samples).median;
    if (rows * t1 / ms > ceiling.speed) ceiling = {rows, ms, rows * t1 / ms};
  }
  return ceiling;
}

// Leviathan et al. 2023, arXiv:2211.17192, equation 1 and theorem 3.8, of passes that have a draft:
// a draft is a chain of `depth` tokens, each right with probability alpha if those before it are;
// drafting one takes cost_ratio passes of the target, and checking all takes one.
struct ChainModel {
  double alpha, depth, cost_ratio, tokens, speed;
};

ChainModel chain_model(const AnswerTotals& totals, double plain_ms) {
  const Counters& counters = totals.counters;
  const double alpha = ratio(counters.accepted, counters.tested);
  const double depth = ratio(counters.draft_depth, counters.drafts);
  const double cost_ratio =
      counters.draft_depth > 0
          ? counters.draft_ms / static_cast<double>(counters.draft_depth) / plain_ms
          : 0;
  const double tokens = alpha < 1 ? (1 - std::pow(alpha, depth + 1)) / (1 - alpha) : depth + 1;
  return {alpha, depth, cost_ratio, tokens, tokens / (depth * cost_ratio + 1)};
}

double accepted_length(const Counters& counters) {
  return ratio(counters.accepted, counters.drafts);
}

double median_of(const ByPrompt& by_prompt) {
  std::vector<double> all;
  for (const auto& [prompt, values] : by_prompt)
    all.insert(all.end(), values.begin(), values.end());
  return spread(all).median;
}

std::optional<Interval> interval_of(const ByPrompt& by_prompt) {
  std::vector<std::vector<double>> subjects;
  for (const auto& [prompt, values] : by_prompt) subjects.push_back(values);
  return median_interval(subjects);
}

Json interval_json(const ByPrompt& by_prompt) {
  const auto interval = interval_of(by_prompt);
  return interval ? Json{interval->low, interval->high} : Json();
}

Json cell_json(const Cell& cell, double plain_ms) {
  const AnswerTotals& totals = cell.totals;
  const ChainModel model = chain_model(totals, plain_ms);
  return {{"group", cell.group},
          {"draft", cell.draft},
          {"answers", cell.n_answers},
          {"tokens_per_second", spread(cell.tokens_per_second).median},
          {"ratio", median_of(cell.ratios)},
          {"ratio_95", interval_json(cell.ratios)},
          {"whole_ms", totals.whole_ms()},
          {"whole_ratio", median_of(cell.whole_ratios)},
          {"whole_ratio_95", interval_json(cell.whole_ratios)},
          {"tokens", totals.counters.emitted},
          {"target_passes", totals.counters.steps},
          {"generating_passes", totals.counters.generating},
          {"rows", totals.counters.rows},
          {"tokens_per_pass", totals.tokens_per_pass()},
          {"drafts", totals.counters.drafts},
          {"drafted", totals.counters.drafted},
          {"accepted", totals.counters.accepted},
          {"acceptance", totals.acceptance()},
          {"accepted_length", accepted_length(totals.counters)},
          {"draft_passes", totals.counters.draft_passes},
          {"draft_levels", totals.counters.draft_levels},
          {"drafting_share", totals.drafting_share()},
          {"chain_model",
           {{"alpha", model.alpha},
            {"depth", model.depth},
            {"cost_ratio", model.cost_ratio},
            {"tokens_per_pass", model.tokens},
            {"ratio", model.speed}}},
          {"different", cell.n_different}};
}

Json answer_json(const MeasuredPrompt& prompt, const std::string& draft,
                 const MeasuredPrompt::Answer& answer) {
  const AnswerTotals& totals = answer.totals;
  return {{"id", prompt.id},
          {"group", prompt.group},
          {"round", prompt.round},
          {"draft", draft},
          {"tokens", totals.counters.emitted},
          {"prompt_ms", totals.prompt_ms},
          {"generation_ms", totals.generation_ms},
          {"whole_ms", totals.whole_ms()},
          {"tokens_per_second", totals.tokens_per_second()},
          {"target_passes", totals.counters.steps},
          {"rows", totals.counters.rows},
          {"generating_passes", totals.counters.generating},
          {"drafts", totals.counters.drafts},
          {"draft_depth", totals.counters.draft_depth},
          {"drafted", totals.counters.drafted},
          {"tested", totals.counters.tested},
          {"accepted", totals.counters.accepted},
          {"draft_passes", totals.counters.draft_passes},
          {"draft_levels", totals.counters.draft_levels},
          {"draft_ms", totals.counters.draft_ms},
          {"identical", answer.identical}};
}

template <typename F>
void for_each_answer(const GenerateMeasurements& measured, const F& f) {
  for (const MeasuredPrompt& prompt : measured.prompts)
    for (std::size_t d = 0; d < measured.drafts.size(); ++d)
      f(answer_json(prompt, measured.drafts[d], prompt.answers[d]));
}

std::string csv_field(const Json& value) {
  std::string text = value.is_string() ? value.get<std::string>() : json_text(value);
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

bool all_identical(const GenerateMeasurements& measured) {
  return std::ranges::all_of(measured.prompts, [](const MeasuredPrompt& prompt) {
    return std::ranges::all_of(prompt.answers, &MeasuredPrompt::Answer::identical);
  });
}

Json generate_json(const GenerateMeasurements& measured) {
  Json groups = Json::array(), answers = Json::array(), passes = Json::array();
  for (const Cell& cell : cells_of(measured)) groups.push_back(cell_json(cell, t1_ms(measured)));
  for_each_answer(measured, [&](Json answer) { answers.push_back(std::move(answer)); });
  for (const auto& [rows, ms] : measured.passes)
    passes.push_back({{"rows", rows}, {"ms", spread(ms).median}});
  const Ceiling ceiling = ceiling_of(measured);
  return {{"schema", 2},
          {"model", measured.model},
          {"threads", measured.n_threads},
          {"seed", measured.seed},
          {"learned", measured.keeps_learned ? "kept" : "forgotten"},
          {"profile", measured.reads_profiles ? "stored" : "none"},
          {"identical", all_identical(measured)},
          {"passes", passes},
          {"ceiling", {{"rows", ceiling.rows}, {"ratio", ceiling.speed}}},
          {"groups", groups},
          {"answers", answers}};
}

std::string generate_csv(const GenerateMeasurements& measured) {
  std::string text;
  const auto add = [&](const std::vector<std::string>& fields) {
    text += fmt::format("{}\r\n", fmt::join(fields, ","));
  };
  for_each_answer(measured, [&](const Json& answer) {
    std::vector<std::string> names, fields;
    for (const auto& [name, value] : answer.items()) {
      names.push_back(name);
      fields.push_back(csv_field(value));
    }
    if (text.empty()) add(names);
    add(fields);
  });
  return text;
}

std::string generate_text(const GenerateMeasurements& measured, bool all, int width) {
  Table speeds({"group", "draft", "tokens/s", "speed", "95%", "whole", "95%", "identical"},
               "llrrrrrl");
  Table passes(
      {"group", "draft", "passes", "rows", "tokens/pass", "accepted", "length", "drafting"},
      "llrrrrrr");
  Table models({"group", "draft", "drafts", "draft passes", "alpha", "depth", "cost", "tokens/pass",
                "speed"},
               "llrrrrrrr");
  const double t1 = t1_ms(measured);
  const auto times = [](const ByPrompt& ratios) {
    return ratios.empty() ? "-" : fmt::format("{:.2f}x", median_of(ratios));
  };
  const auto interval_text = [](const Cell& cell, const ByPrompt& ratios) {
    const auto interval = interval_of(ratios);
    return interval && !cell.is_first ? fmt::format("{:.2f}..{:.2f}", interval->low, interval->high)
                                      : "-";
  };
  bool has_drafts = false;
  for (const Cell& cell : cells_of(measured)) {
    const AnswerTotals& totals = cell.totals;
    const Counters& counters = totals.counters;
    speeds.add({cell.group, cell.draft,
                fmt::format("{:.1f}", spread(cell.tokens_per_second).median), times(cell.ratios),
                interval_text(cell, cell.ratios), times(cell.whole_ratios),
                interval_text(cell, cell.whole_ratios),
                cell.n_different ? fmt::format("{} NOT", cell.n_different) : "yes"});
    passes.add({cell.group, cell.draft, fmt::format("{}", counters.steps),
                fmt::format("{}", counters.rows), fmt::format("{:.2f}", totals.tokens_per_pass()),
                totals.acceptance_text(),
                counters.drafts ? fmt::format("{:.2f}", accepted_length(counters)) : "-",
                fmt::format("{:.1f}%", 100 * totals.drafting_share())});
    if (counters.drafts == 0) continue;
    has_drafts = true;
    const ChainModel model = chain_model(totals, t1);
    models.add({cell.group, cell.draft, fmt::format("{}", counters.drafts),
                fmt::format("{}", counters.draft_passes), fmt::format("{:.2f}", model.alpha),
                fmt::format("{:.1f}", model.depth), fmt::format("{:.3f}", model.cost_ratio),
                fmt::format("{:.2f}", model.tokens), fmt::format("{:.2f}x", model.speed)});
  }
  std::string text = speeds.text(width);
  text += '\n' + passes.text(width);
  if (all && has_drafts)
    text += "\nPasses with drafts, if these were chains (Leviathan et al. 2023):\n" +
            models.text(width);
  const Ceiling ceiling = ceiling_of(measured);
  text += fmt::format("\nT(1) {:.2f} ms", t1);
  if (ceiling.rows > 1)
    text += fmt::format(
        "; at most {:.2f}x, if all drafts were right and free: {} rows, T({}) {:.2f} ms",
        ceiling.speed, ceiling.rows, ceiling.rows, ceiling.ms);
  return text + '\n';
}

}  // namespace outrider

// Many users' answers without a server, step by step, for bench/serving/count:
// outrider-batch-steps MODEL.gguf THREADS USERS HOW [fixed]
//
// HOW is what --draft takes; "fixed" drafts always, three tokens in a chain. Each line of standard
// input is a number of tokens and the prompts, each its length and its tokens; all answers are
// asked for at once, greedily, and end with that number of tokens. The answer is a line of JSON
// with each step and the tokens that it brought to each prompt. What an earlier line left in the
// prompt cache is used; what earlier answers taught is not.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cpu/backend.h"
#include "engine/scheduler.h"
#include "runtime/runtime.h"

using namespace outrider;

namespace {

constexpr int kContext = 2048;
constexpr PlannerOptions kAlways{.automatic = false, .rows = 3, .depth = 3, .width = 1};

struct RecordedStep {
  int rows = 0, prompt_rows = 0;
  double draft_ms = 0, forward_ms = 0;
  std::vector<std::pair<int, int>> taken = {};  // a prompt's number, its tokens
};

RecordedStep recorded(const StepReport& report) {
  RecordedStep step{
      .rows = report.rows, .draft_ms = report.draft_ms, .forward_ms = report.forward_ms};
  for (const StepReport::Sequence& sequence : report.sequences)
    step.prompt_rows += sequence.n_tokens - (sequence.emitted.empty() ? 0 : 1);
  return step;
}

std::vector<RecordedStep> answer_all(Engine& engine, const Tokenizer& tokenizer, int n_predict,
                                     const std::vector<std::vector<Token>>& prompts) {
  std::vector<RecordedStep> steps;
  std::optional<Error> failure;
  engine.forget_ended_sequences();
  engine.on_step([&](const StepReport& report) { steps.push_back(recorded(report)); });
  Scheduler scheduler(engine, tokenizer, {.n_running = static_cast<int>(prompts.size())});
  for (int i = 0; i < std::ssize(prompts); ++i) {
    SamplingParams greedy;
    greedy.filters.temperature = 0;
    const auto listener = [&, i](const AnswerEvent& event) {
      if (event.end && event.end->error) failure = event.end->error;
      if (!event.tokens.empty())
        steps.back().taken.emplace_back(i, static_cast<int>(event.tokens.size()));
    };
    scheduler.submit({.request = {.prompt = prompts[i],
                                  .sampling = greedy,
                                  .stop = {.n_predict = n_predict, .ignore_eos = true}}},
                     listener);
  }
  while (scheduler.turn()) {
  }
  engine.on_step({});
  if (failure) throw *failure;
  return steps;
}

std::string json(const RecordedStep& step) {
  std::vector<std::string> taken;
  for (const auto& [prompt, n] : step.taken) taken.push_back(fmt::format("[{},{}]", prompt, n));
  return fmt::format(
      R"({{"rows":{},"prompt_rows":{},"draft_ms":{:.3f},"forward_ms":{:.3f},"taken":[{}]}})",
      step.rows, step.prompt_rows, step.draft_ms, step.forward_ms, fmt::join(taken, ","));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bool fixed = argc == 6 && argv[5] == std::string_view("fixed");
    if (argc != 5 && !fixed)
      throw Error("usage: outrider-batch-steps MODEL.gguf THREADS USERS HOW [fixed]");
    const std::vector<DraftChoice> drafters = parse_draft(argv[4], "");
    Runtime runtime({.model = argv[1],
                     .offline = true,
                     .context = kContext,
                     .n_threads = std::atoi(argv[2]),
                     .n_sequences = std::atoi(argv[3]),
                     .pool = RuntimeOptions::Pool{},
                     .drafters = drafters,
                     .planner = fixed ? kAlways : PlannerOptions{}},
                    [](const Model&) -> const BackendFactory& { return cpu_backends(); }, {});
    const auto engine = runtime.make_engine(drafters);
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream numbers(line);
      int n_predict = 0;
      numbers >> n_predict;
      std::vector<std::vector<Token>> prompts;
      for (int length = 0; numbers >> length;) {
        prompts.emplace_back(length);
        for (Token& token : prompts.back()) numbers >> token;
      }
      std::vector<std::string> steps;
      for (const RecordedStep& step :
           answer_all(*engine, *runtime.target_model().tokenizer, n_predict, prompts))
        steps.push_back(json(step));
      std::cout << fmt::format("[{}]", fmt::join(steps, ",")) << std::endl;
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "outrider-batch-steps: %s\n", error.what());
    return 1;
  }
}

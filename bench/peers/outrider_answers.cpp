// outrider as bench/peers/generate asks for it: outrider-answers MODEL.gguf THREADS HOW
// [ignore-eos], where HOW is what --draft takes. Each line of standard input is a number of tokens
// and the tokens of a prompt; the answer is a line with the milliseconds of the prompt, how many
// tokens came with it, and all tokens of the answer but one that ends it.

#include <fmt/ranges.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cpu/backend.h"
#include "runtime/runtime.h"

using namespace outrider;

int main(int argc, char** argv) {
  try {
    const bool ignore_eos = argc == 5 && argv[4] == std::string_view("ignore-eos");
    if (argc != 4 && !ignore_eos)
      throw Error("usage: outrider-answers MODEL.gguf THREADS HOW [ignore-eos]");
    const std::vector<DraftChoice> drafters = parse_draft(argv[3], "");
    Runtime runtime({.model = argv[1],
                     .offline = true,
                     .context = 4096,
                     .n_threads = std::atoi(argv[2]),
                     .drafters = drafters},
                    [](const Model&) -> const BackendFactory& { return cpu_backends(); }, {});
    const auto engine = runtime.make_engine(drafters);
    SamplingParams greedy;
    greedy.filters.temperature = 0;
    std::cout << "ready" << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream numbers(line);
      int n_predict = 0;
      numbers >> n_predict;
      std::vector<Token> prompt;
      for (Token token; numbers >> token;) prompt.push_back(token);
      engine->forget_ended_sequences();
      Session session = runtime.open_session(*engine);  // with nothing of the answer before
      Completion answer =
          session.complete({.prompt = prompt,
                            .sampling = greedy,
                            .stop = {.n_predict = n_predict, .ignore_eos = ignore_eos}});
      // The others' texts do not show the token that ends them.
      if (answer.finish_reason == FinishReason::stop) answer.tokens.pop_back();
      std::cout << fmt::format("{:.3f} {} {}", answer.prompt_ms, answer.first_tokens,
                               fmt::join(answer.tokens, " "))
                << std::endl;
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "outrider-answers: %s\n", error.what());
    return 1;
  }
}

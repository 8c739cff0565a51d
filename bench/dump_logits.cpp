// Writes the logits of every position of a text: the other side of scripts/agreement.py.
//
// usage: outrider-dump-logits MODEL.gguf < tokens > logits
// tokens: ids as decimal text; logits: float32, [tokens][vocabulary].

#include <cstdio>
#include <iostream>
#include <vector>

#include "base/error.h"
#include "base/machine.h"
#include "cpu/backend.h"
#include "formats/gguf.h"

using namespace outrider;

namespace {

void dump(const char* path) {
  const Model model = understand(std::make_shared<Checkpoint>(read_gguf(path)));
  std::vector<Token> tokens;
  for (Token token; std::cin >> token;) tokens.push_back(token);
  const auto backend = load_cpu(
      model, {.context = static_cast<int>(tokens.size()) + 1, .n_threads = usable_cores()});
  const SequenceId sequence = backend->begin();
  constexpr std::size_t kChunk = 64;
  for (std::size_t begin = 0; begin < tokens.size(); begin += kChunk) {
    std::vector<Row> rows;
    for (std::size_t at = begin; at < std::min(begin + kChunk, tokens.size()); ++at) {
      const Parent parent = at == begin ? Parent(CommittedText{})
                                        : Parent(EarlierRow{static_cast<int>(rows.size()) - 1});
      rows.push_back({.sequence = sequence,
                      .token = tokens[at],
                      .position = static_cast<int>(at),
                      .parent = parent,
                      .wants_logits = true});
    }
    const Pass pass = backend->forward(rows);
    for (int row = 0; row < static_cast<int>(rows.size()); ++row) {
      const ChoiceRequest request{.row = row, .filters = {.temperature = 0}, .wants_logits = true};
      const std::vector<float> logits = backend->choose(pass, std::span(&request, 1))[0].logits;
      if (std::fwrite(logits.data(), sizeof(float), logits.size(), stdout) != logits.size())
        throw Error("cannot write");
    }
    backend->commit(sequence, pass.slots);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw Error("usage: outrider-dump-logits MODEL.gguf < tokens > logits");
    dump(argv[1]);
  } catch (const Error& error) {
    std::fprintf(stderr, "outrider-dump-logits: %s\n", error.what());
    return 1;
  }
}

// outrider as bench/peers/measure asks for it: outrider-passes MODEL.gguf THREADS

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "cpu/backend.h"
#include "formats/gguf.h"
#include "passes.h"

using namespace outrider;

namespace {

class Engine {
 public:
  explicit Engine(Backend& backend) : backend_(backend), sequence_(backend.begin()) {}

  void pass(int n_tokens, int position, bool all_logits) {
    std::vector<Row> rows;
    for (int i = 0; i < n_tokens; ++i) {
      rows.push_back({.sequence = sequence_,
                      .token = (position + i) * 37 % backend_.spec().vocabulary,
                      .position = position + i,
                      .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}},
                      .wants_logits = all_logits || i + 1 == n_tokens});
    }
    backend_.commit(sequence_, backend_.forward(rows).slots);
  }
  void clear() { backend_.truncate(sequence_, 0); }

 private:
  Backend& backend_;
  SequenceId sequence_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw Error("usage: outrider-passes MODEL.gguf THREADS");
    const Model model = interpret_checkpoint(std::make_shared<Checkpoint>(read_gguf(argv[1])));
    const auto backend = load_cpu(model, {.context = 1024, .n_threads = std::atoi(argv[2])});
    Engine engine(*backend);
    serve_passes(engine);
  } catch (const Error& error) {
    std::fprintf(stderr, "outrider-passes: %s\n", error.what());
    return 1;
  }
}

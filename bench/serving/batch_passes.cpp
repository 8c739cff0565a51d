// Passes as a server makes them, for bench/serving/measure and steady:
// outrider-batch-passes MODEL.gguf THREADS. Each line of standard input asks for one thing, the
// answer is its milliseconds, the median of 16, without choosing a token:
//
//   texts N LENGTH    a row of each of N texts of this length, which grow
//   prompt N LENGTH   N rows of a prompt after LENGTH of its tokens, logits of the last

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cpu/backend.h"
#include "formats/gguf.h"

using namespace outrider;

namespace {

constexpr int kContext = 4096, kTextsMax = 96, kPasses = 16;

double median(std::vector<double> times) {
  std::ranges::sort(times);
  return times[times.size() / 2];
}

class Passes {
 public:
  explicit Passes(Backend& backend) : backend_(backend) {}

  double texts(int n, int length) {
    if (n > kTextsMax) throw Error("at most {} texts at once, not {}", kTextsMax, n);
    std::vector<SequenceId>& texts = texts_[length];
    while (std::ssize(texts) < n) texts.push_back(text(length));
    std::vector<double> times;
    for (int pass = 0; pass < kPasses; ++pass) {
      std::vector<Row> rows;
      for (int i = 0; i < n; ++i) add_rows(rows, texts[i], length + pass, 1);
      const auto [ms, slots] = timed(rows);
      times.push_back(ms);
      for (int i = 0; i < n; ++i) backend_.commit(texts[i], std::span(slots).subspan(i, 1));
    }
    for (int i = 0; i < n; ++i) backend_.truncate(texts[i], length);
    return median(times);
  }

  double prompt(int n, int length) {
    const SequenceId prompt = text(length);
    std::vector<double> times;
    for (int pass = 0; pass < kPasses; ++pass) {
      std::vector<Row> rows;
      add_rows(rows, prompt, length, n);
      times.push_back(timed(rows).ms);
      backend_.discard(prompt);
    }
    backend_.end(prompt);
    return median(times);
  }

 private:
  // Rows of tokens that follow each other, which tokens does not matter; logits of the last.
  void add_rows(std::vector<Row>& rows, SequenceId sequence, int begin, int n) const {
    for (int i = 0; i < n; ++i) {
      const int before = static_cast<int>(rows.size()) - 1;
      rows.push_back({.sequence = sequence,
                      .token = (begin + i) * 37 % backend_.spec().vocabulary,
                      .position = begin + i,
                      .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{before}},
                      .wants_logits = i + 1 == n});
    }
  }

  SequenceId text(int length) {
    const SequenceId sequence = backend_.begin();
    for (int begin = 0; begin < length;) {
      const int n = std::min(length - begin, backend_.options().batch_rows);
      std::vector<Row> rows;
      add_rows(rows, sequence, begin, n);
      backend_.commit(sequence, backend_.forward(rows).slots);
      begin += n;
    }
    return sequence;
  }

  struct Timed {
    double ms;
    std::vector<SlotId> slots;
  };
  Timed timed(std::span<const Row> rows) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<SlotId> slots = backend_.forward(rows).slots;
    const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
    return {ms.count(), std::move(slots)};
  }

  Backend& backend_;
  std::map<int, std::vector<SequenceId>> texts_;  // by length, read once
};

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw Error("usage: outrider-batch-passes MODEL.gguf THREADS");
    const Model model = interpret_checkpoint(std::make_shared<Checkpoint>(read_gguf(argv[1])));
    const auto backend = load_cpu(
        model, {.context = kContext, .n_sequences = kTextsMax, .n_threads = std::atoi(argv[2])});
    std::cout << "ready" << std::endl;
    Passes passes(*backend);
    std::string what;
    for (int n, length; std::cin >> what >> n >> length;)
      std::cout << (what == "texts" ? passes.texts(n, length) : passes.prompt(n, length))
                << std::endl;
  } catch (const Error& error) {
    std::fprintf(stderr, "outrider-batch-passes: %s\n", error.what());
    return 1;
  }
}

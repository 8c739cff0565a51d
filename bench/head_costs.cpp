// What a head costs beside its target, in turns within rounds:
//
//     outrider-head-costs MODEL.gguf HEAD [ROUNDS]
//
// Medians over rounds, with the least and the largest, of T(1), the target's pass over one row with
// its choice; and as multiples of it: a step without drafts, in which the head computes its rows; a
// level of four rows with their best tokens; the first level, whose row is computed in the step.
// Of Medusa's heads, all of them in place of levels. Then a prompt of 512 tokens with and without
// the head.

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/machine.h"
#include "base/stopwatch.h"
#include "cpu/backend.h"
#include "model/block_rows.h"
#include "runtime/drafter_registry.h"
#include "runtime/head_file.h"
#include "runtime/opened_model.h"
#include "speculation/drafters/block.h"
#include "speculation/drafters/eagle.h"
#include "speculation/drafters/medusa.h"

namespace outrider {
namespace {

constexpr int kPrompt = 512, kPasses = 16, kLevelRows = 4;

// Figures by name, one of each round.
using Figures = std::map<std::string, std::vector<double>>;

std::string shown(std::vector<double> values) {
  std::ranges::sort(values);
  return fmt::format("{:.4g} ({:.4g}..{:.4g})", values[values.size() / 2], values.front(),
                     values.back());
}

class Bench {
 public:
  Bench(const std::string& model, const std::string& head)
      : opened_(open_model(model, {.offline = true, .progress = {}})) {
    const DrafterKind& kind =
        *parse_draft(fmt::format("{}={}", head_kind(head), head), "").at(0).kind;
    Head found = open_head(head, opened_.model);
    LoadOptions of_head = kind.head_options(found, *opened_.tokenizer, {});
    backend_ = load_cpu(opened_.model, {.context = 2048,
                                        .n_sequences = 2,
                                        .batch_rows = kPrompt,
                                        .n_threads = usable_cores(),
                                        .head = std::make_shared<const HeadToLoad>(HeadToLoad{
                                            std::move(found.model), std::move(of_head)})});
    if (backend_->head()->spec().medusa)
      drafter_ = std::make_unique<MedusaDrafter>(backend_);
    else if (backend_->head()->spec().block)
      drafter_ = std::make_unique<BlockDrafter>(backend_, "dflash");
    else
      drafter_ = std::make_unique<EagleDrafter>(backend_, "eagle");
    drafter_->begin({0});
    plain_ = backend_->begin();
    headed_ = backend_->head()->begin();
    drafter_->bind({0}, headed_);
  }

  void round(Figures& figures) {
    for (const SequenceId sequence : {plain_, headed_}) backend_->truncate(sequence, 0);
    const double prompt = step(plain_, kPrompt), prompt_with = step(headed_, kPrompt);
    figures["prompt of 512, ms"].push_back(prompt);
    figures["prompt of 512 with the head, over that"].push_back(prompt_with / prompt);
    std::vector<double> plain, headed, level, first;
    for (int pass = 0; pass < kPasses; ++pass) {
      plain.push_back(step(plain_, 1));
      headed.push_back(step(headed_, 1));
      if (const auto& medusa = backend_->head()->spec().medusa) {
        level.push_back(head_pass(medusa->n_heads, {}));
      } else if (backend_->head()->spec().block) {
        level.push_back(block_pass());
      } else {
        level.push_back(head_pass(kLevelRows, {}));
        first.push_back(head_pass(1, {.layers = std::vector<int>()}));
      }
    }
    const auto median = [](std::vector<double>& values) {
      std::ranges::sort(values);
      return values[values.size() / 2];
    };
    const double t1 = median(plain);
    figures["T(1), ms"].push_back(t1);
    figures["step without drafts, over T(1)"].push_back(median(headed) / t1);
    const bool is_block = backend_->head()->spec().block.has_value();
    figures[is_block        ? "block, over T(1)"
            : first.empty() ? "all heads, over T(1)"
                            : "level of 4 rows, over T(1)"]
        .push_back(median(level) / t1);
    if (!first.empty()) figures["first level, over T(1)"].push_back(median(first) / t1);
  }

 private:
  // A step that computes n tokens of a text and the choice after them.
  double step(SequenceId sequence, int n) {
    const int first = backend_->committed(sequence);
    std::vector<Row> rows;
    std::vector<int> numbers;
    std::vector<Token> tokens;
    for (int i = 0; i < n; ++i) {
      tokens.push_back((first + i) * 37 % 1000);
      numbers.push_back(i);
      rows.push_back({.sequence = sequence,
                      .token = tokens.back(),
                      .position = first + i,
                      .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}},
                      .wants_logits = i + 1 == n});
    }
    const ChoiceRequest choice{.row = n - 1};
    const Stopwatch watch;
    const Pass pass = backend_->forward(rows);
    backend_->choose(pass, {&choice, 1});
    if (sequence == headed_) {
      const ComputedText text{
          .sequence = {0}, .first = first, .tokens = tokens, .rows = numbers, .next = 5};
      drafter_->computed(pass, {&text, 1});
    }
    backend_->commit(sequence, pass.slots);
    return watch.ms();
  }

  double head_pass(int n, const ForwardOptions& options) {
    Backend& head = *backend_->head();
    const std::vector<float> state(static_cast<std::size_t>(head.spec().embedding), 0.1f);
    const bool is_medusa = head.spec().medusa.has_value();
    std::vector<Row> rows;
    std::vector<ChoiceRequest> choices;
    for (int i = 0; i < n; ++i) {
      rows.push_back({.sequence = headed_,
                      .token = 100 + i,
                      .position = head.committed(headed_) + (is_medusa ? i : 0),
                      .wants_logits = true});
      if (!is_medusa) rows.back().before = std::span<const float>(state);
      choices.push_back({.row = i, .filters = {.temperature = 0}, .n_best = 4});
    }
    const Stopwatch watch;
    head.choose(head.forward(rows, options), choices);
    const double ms = watch.ms();
    head.discard(headed_);
    return ms;
  }

  // A block, and a chain of tokens that complete it.
  double block_pass() {
    Backend& head = *backend_->head();
    const BlockInput& block = *head.spec().block;
    const int first_guess = block.first_guess();
    const std::vector<Row> rows =
        block_rows(block, {.sequence = headed_, .anchor = 100, .position = head.committed(headed_)},
                   block.n_rows);
    std::vector<ChoiceRequest> choices;
    for (int row = first_guess; row < block.n_rows; ++row)
      choices.push_back({.row = row, .filters = {.temperature = 0}, .n_best = 4});
    const Stopwatch watch;
    const Pass pass = head.forward(rows);
    if (block.successor_rank == 0) head.choose(pass, choices);
    for (int i = first_guess; block.successor_rank > 0 && i < block.n_rows; ++i) {
      const Row row{.sequence = headed_,
                    .token = 100 + i,
                    .position = rows[i].position,
                    .wants_logits = true,
                    .before = BlockRow{i}};
      const ChoiceRequest choice{.row = 0, .filters = {.temperature = 0}, .n_best = 4};
      head.choose(head.forward({&row, 1}), {&choice, 1});
    }
    const double ms = watch.ms();
    head.discard(headed_);
    return ms;
  }

  const OpenedModel opened_;
  std::shared_ptr<Backend> backend_;
  std::unique_ptr<Drafter> drafter_;
  SequenceId plain_, headed_;
};

}  // namespace
}  // namespace outrider

int main(int argc, char** argv) {
  using namespace outrider;
  if (argc < 3) {
    fmt::print(stderr, "usage: outrider-head-costs MODEL.gguf HEAD [ROUNDS]\n");
    return 2;
  }
  try {
    Bench bench(argv[1], argv[2]);
    Figures figures, first;
    bench.round(first);  // touches memory
    const int rounds = argc > 3 ? std::max(1, std::atoi(argv[3])) : 5;
    for (int round = 0; round < rounds; ++round) bench.round(figures);
    for (const auto& [name, values] : figures) fmt::print("{}: {}\n", name, shown(values));
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

#include "speculation/layer_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "speculation/drafters/self.h"
#include "speculation/time_pass.h"

namespace outrider {
namespace {

constexpr int kDepthMax = 8;
// Rows after which a candidate reads again what all layers have computed, as a draft does after
// its few levels.
constexpr int kBlock = 4;
constexpr int kTimes = 3;  // a pass is timed so often, and the fastest counts

double fastest(Backend& target, SequenceId sequence, int n_rows, const ForwardOptions& options) {
  double ms = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimes; ++i)
    ms = std::min(ms, time_pass(target, sequence, n_rows, n_rows, options));
  return ms;
}

}  // namespace

LayerSearch::LayerSearch(Backend& target, std::vector<Answer> answers, std::uint64_t seed)
    : target_(target), answers_(std::move(answers)), random_(seed), pass_ms_(kDepthMax + 2) {
  const int n = target_.spec().n_layers();
  if (n < 2) throw Error("the model has one layer, and none can be left out");
  const auto leave_out = [&](int first, int end) {
    std::vector<int> layers;
    for (int layer = first; layer < end; ++layer) layers.push_back(layer);
    if (!layers.empty() && std::ssize(layers) < n) first_.push_back(layers);
  };
  leave_out(n / 2, n);          // early exit
  leave_out(n / 2, n * 3 / 4);  // with the last ones
  leave_out(n / 4, n / 2);
  leave_out(n - 2, n - 1);
  if (const std::vector<int> usual = usual_skipped_layers(n); !usual.empty())
    first_.push_back(usual);
  CHECK(!first_.empty());
  const OwnedSequence own(target_);
  time_pass(target_, own.id(), 1, 1);  // first touches of memory
  for (int rows = 1; rows <= kDepthMax + 1; ++rows)
    pass_ms_[rows] = fastest(target_, own.id(), rows, {});
}

void LayerSearch::try_sets(int n, const std::function<void()>& between_passes) {
  std::vector<Candidate> candidates;
  for (int i = 0; i < n; ++i) {
    std::vector<int> set = next_set();
    const auto is_same = [&](const Candidate& other) { return other.left_out == set; };
    if (set.empty() || std::ssize(set) == target_.spec().n_layers() ||
        std::ranges::any_of(tried_, is_same) || std::ranges::any_of(candidates, is_same))
      continue;
    candidates.push_back({.left_out = std::move(set)});
  }
  if (candidates.empty()) return;
  measure(candidates, between_passes);
  tried_.insert(tried_.end(), candidates.begin(), candidates.end());
  std::ranges::stable_sort(tried_, std::greater<>{}, &Candidate::speed);
}

// One layer more or less than the best set, or another one in place of one.
std::vector<int> LayerSearch::next_set() {
  if (!first_.empty()) {
    std::vector<int> set = first_.back();
    first_.pop_back();
    return set;
  }
  if (tried_.empty()) return {};
  std::vector<int> set = best().left_out;
  const auto flip = [&](int layer) {
    const auto at = std::ranges::lower_bound(set, layer);
    if (at != set.end() && *at == layer)
      set.erase(at);
    else
      set.insert(at, layer);
  };
  const auto any = [&](std::size_t n) { return static_cast<int>(random_() % n); };
  const auto kept = layers_without(set, target_.spec().n_layers());
  const int change = any(3);
  if (change != 0 && !set.empty()) flip(set[any(set.size())]);
  if (change != 1) flip(kept[any(kept.size())]);
  return set;
}

// All on the same tokens: what all layers have computed is computed once.
void LayerSearch::measure(std::vector<Candidate>& candidates,
                          const std::function<void()>& between_passes) {
  const int n_layers = target_.spec().n_layers();
  std::vector<int> n_right(candidates.size());
  int n_tokens = 0;
  for (const Answer& answer : answers_) {
    const OwnedSequence own(target_);
    const SequenceId sequence = own.id();
    const int length = static_cast<int>(answer.tokens.size());
    const auto rows_from = [&](int first, int n, bool wants_logits) {
      std::vector<Row> rows;
      for (int i = 0; i < n; ++i)
        rows.push_back({.sequence = sequence,
                        .token = answer.tokens[first + i],
                        .position = first + i,
                        .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}},
                        .wants_logits = wants_logits});
      return rows;
    };
    const auto compute = [&](int end) {
      while (target_.committed(sequence) < end) {
        const int first = target_.committed(sequence);
        const int n =
            std::min({end - first, target_.options().batch_rows, target_.free_slots(sequence)});
        target_.commit(sequence, target_.forward(rows_from(first, n, false)).slots);
      }
    };
    for (int first = answer.n_prompt; first + 1 < length; first += kBlock) {
      compute(first);
      between_passes();
      const int n = std::min(kBlock, length - 1 - first);
      n_tokens += n;
      for (std::size_t c = 0; c < candidates.size(); ++c) {
        const Pass pass =
            target_.forward(rows_from(first, n, true),
                            {.layers = layers_without(candidates[c].left_out, n_layers)});
        std::vector<ChoiceRequest> requests;
        for (int i = 0; i < n; ++i) requests.push_back({.row = i, .filters = {.temperature = 0}});
        const std::vector<Choice> choices = target_.choose(pass, requests);
        for (int i = 0; i < n; ++i)
          n_right[c] += choices[i].token == answer.tokens[first + i + 1] ? 1 : 0;
        target_.discard(sequence);
      }
    }
  }
  CHECK(n_tokens > 0);
  const OwnedSequence own(target_);
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    candidates[c].acceptance = static_cast<double>(n_right[c]) / n_tokens;
    candidates[c].pass_ms =
        fastest(target_, own.id(), 1, {.layers = layers_without(candidates[c].left_out, n_layers)});
    expect(candidates[c]);
  }
}

// Chains of d tokens, each accepted with the same probability: Leviathan et al. 2023, theorem 3.8.
void LayerSearch::expect(Candidate& candidate) const {
  double tokens = 1, value = 1;
  candidate.speed = 0;
  for (int depth = 1; depth <= kDepthMax; ++depth) {
    value *= candidate.acceptance;
    tokens += value;
    const double ms = pass_ms_[depth + 1] + depth * candidate.pass_ms;
    if (const double speed = tokens * pass_ms_[1] / ms; speed > candidate.speed) {
      candidate.speed = speed;
      candidate.depth = depth;
    }
  }
}

}  // namespace outrider

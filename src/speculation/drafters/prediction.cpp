#include "speculation/drafters/prediction.h"

#include <algorithm>
#include <queue>
#include <set>

#include "base/error.h"
#include "base/stopwatch.h"
#include "speculation/drafter_kind.h"

namespace outrider {

void PredictionDrafter::begin(DraftSequence sequence, CacheScope) {
  CHECK(texts_.try_emplace(sequence).second);
}

void PredictionDrafter::observe(DraftSequence sequence, std::span<const Token> tokens) {
  Text& text = texts_.at(sequence);
  if (text.answer.prediction().empty())
    text.n_before += static_cast<int>(tokens.size());
  else
    for (const Token token : tokens) text.answer.append(token);
}

void PredictionDrafter::expect(DraftSequence sequence, std::span<const Token> prediction) {
  Text& text = texts_.at(sequence);
  text.n_before += text.answer.size();
  text.answer = Alignment(prediction);
}

void PredictionDrafter::propose(std::span<const DraftRequest> requests) {
  const Stopwatch watch;
  for (const DraftRequest& request : requests) propose(request);
  time_.add(watch.ms(), requests.size());
}

// The most likely nodes first: where one place ends in a node, the next token of the prediction may
// follow.
void PredictionDrafter::propose(const DraftRequest& request) const {
  const Alignment& answer = texts_.at(request.sequence).answer;
  const std::span<const Token> prediction = answer.prediction();
  const DraftLimits& limits = request.limits;
  struct Next {
    double value;  // the probability of its path
    Alignment::Place place;
    int parent, depth;
    bool operator<(const Next& other) const { return value < other.value; }
  };
  std::priority_queue<Next> next;
  std::vector<Alignment::Place> places = answer.places();
  places.resize(std::min<std::size_t>(places.size(), std::max(0, limits.width)));
  for (const Alignment::Place& place : places) next.push({place.probability, place, 0, 1});
  std::set<int> nodes;  // several places may go on alike
  while (std::ssize(nodes) < limits.nodes && !next.empty()) {
    const auto [value, place, parent, depth] = next.top();
    next.pop();
    if (depth > limits.depth) continue;
    const int node = request.tree->propose(
        parent, prediction[place.index], {request.drafter, static_cast<float>(place.probability)});
    if (!nodes.insert(node).second || place.index + 1 == std::ssize(prediction)) continue;
    const double probability = Alignment::agreement(place.n_matched + 1);
    next.push({value * probability,
               {place.index + 1, place.n_matched + 1, probability},
               node,
               depth + 1});
  }
}

void PredictionDrafter::truncate(DraftSequence sequence, int length) {
  Text& text = texts_.at(sequence);
  if (length < text.n_before)
    text = {.n_before = length, .answer = {}};
  else
    text.answer.truncate(length - text.n_before);
}

void PredictionDrafter::end(DraftSequence sequence) {
  CHECK(texts_.erase(sequence) == 1);
}

const DrafterKind& prediction_kind() {
  static const DrafterKind kind{.name = "prediction",
                                .value = "FILE",
                                .value_is_prediction = true,
                                .help = "a text that the answer is expected to repeat mostly",
                                .make = [](const DrafterContext&) -> std::unique_ptr<Drafter> {
                                  return std::make_unique<PredictionDrafter>();
                                }};
  return kind;
}

}  // namespace outrider

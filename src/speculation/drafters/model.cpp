#include "speculation/drafters/model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "speculation/time_pass.h"

namespace outrider {
namespace {

// The best scores among which a sampled child's confidence is shared out.
constexpr int kRivals = 8;
// Tokens that the first pass of a proposal may have to read without being slower for it.
constexpr int kUsualCatchUp = 16;

// A running mean that one slow pass hardly moves: passes are slow by accident, never fast.
void blend(double& mean, double last) {
  mean = mean == 0 ? last : mean + 0.25 * (std::min(last, 1.5 * mean) - mean);
}

std::vector<float> confidences(const std::vector<Candidate>& best, float temperature) {
  std::vector<float> shares;
  float sum = 0;
  for (const Candidate& candidate : best) {
    shares.push_back(temperature == 0 ? candidate.probability
                                      : std::exp(candidate.score - best[0].score));
    sum += shares.back();
  }
  if (temperature != 0)
    for (float& share : shares) share /= sum;
  return shares;
}

}  // namespace

struct ModelDrafter::Growth {
  const DraftRequest* request;
  Sequence* sequence;
  SamplingParams sampling;  // the request's, without biases of tokens that the draft does not have
  bool ended = false;

  // Nodes in the order of their value, as many as may be proposed; node 0 first.
  std::vector<int> best() const {
    std::vector<int> order(sequence->tree.size());
    for (std::size_t node = 0; node < order.size(); ++node) order[node] = static_cast<int>(node);
    std::ranges::stable_sort(order, std::greater<>{},
                             [&](int node) { return sequence->tree[node].value; });
    order.resize(std::min<std::size_t>(order.size(), request->limits.nodes + 1));
    return order;
  }
};

ModelDrafter::ModelDrafter(std::unique_ptr<Backend> backend, int target_vocabulary)
    : backend_(std::move(backend)) {
  const int n = backend_->spec().vocabulary;
  if (n > target_vocabulary) {
    allowed_.assign((n + 63) / 64, 0);
    for (int token = 0; token < target_vocabulary; ++token)
      allowed_[token / 64] |= std::uint64_t{1} << (token % 64);
  }
}

void ModelDrafter::begin(DraftSequence sequence) {
  CHECK(sequences_.try_emplace(sequence, Sequence{backend_->begin(), {}, {}, {}}).second);
}

void ModelDrafter::observe(DraftSequence number, std::span<const Token> tokens) {
  Sequence& sequence = sequences_.at(number);
  if (!sequence.tree.empty()) {
    std::vector<SlotId> path;
    int node = 0;
    for (Token token : tokens) {
      const auto child = std::ranges::find_if(sequence.tree, [&](const Node& other) {
        return other.parent == node && other.token == token;
      });
      if (child == sequence.tree.end() || !child->slot) break;
      path.push_back(*child->slot);
      node = static_cast<int>(child - sequence.tree.begin());
    }
    backend_->commit(sequence.id, path);
    sequence.tree.clear();
  }
  backend_->add_outputs(tokens);
  for (Token token : tokens) {
    if (token >= backend_->spec().vocabulary && !sequence.first_unknown)
      sequence.first_unknown = sequence.text.size();
    sequence.text.push_back(token);
  }
}

void ModelDrafter::propose(std::span<const DraftRequest> requests) {
  std::vector<Growth> growths;
  int depth = 0;
  for (const DraftRequest& request : requests) {
    Sequence& sequence = sequences_.at(request.sequence);
    const int length = static_cast<int>(sequence.text.size());
    if (sequence.first_unknown || length > backend_->options().context) continue;
    if (request.limits.nodes <= 0 || request.limits.depth <= 0 || request.limits.width <= 0)
      continue;
    // Its logits are wanted, so the last token is computed even if the cache has it.
    if (backend_->committed(sequence.id) >= length)
      backend_->truncate(sequence.id, length - 1);
    else
      backend_->discard(sequence.id);
    sequence.tree = {{sequence.text.back(), -1, 0, 1, 1, std::nullopt}};
    growths.push_back({&request, &sequence, *request.sampling});
    std::erase_if(growths.back().sampling.bias,
                  [&](const TokenBias& bias) { return bias.token >= backend_->spec().vocabulary; });
    depth = std::max(depth, request.limits.depth);
  }
  if (growths.empty()) return;

  catch_up(growths);
  for (int level = 2; level <= depth && grow(growths); ++level) {
  }

  for (const Growth& growth : growths) {
    const std::vector<Node>& tree = growth.sequence->tree;
    std::vector<int> drafted(tree.size(), 0);
    for (int node : growth.best())
      if (node != 0)
        drafted[node] =
            growth.request->tree->propose(drafted[tree[node].parent], tree[node].token,
                                          {growth.request->drafter, tree[node].confidence});
  }
}

// Computes and commits what the caches lack, node 0 among it, and gives each node 0 its children.
void ModelDrafter::catch_up(std::vector<Growth>& growths) {
  const Stopwatch watch;
  int n_unread = 0;
  for (const Growth& growth : growths) n_unread += unread(growth.request->sequence);
  for (bool caught_up = false; !caught_up;) {
    caught_up = true;
    std::vector<Row> rows;
    std::vector<std::vector<int>> rows_of(growths.size());
    std::vector<int> last;  // growths whose node 0 is in this pass
    for (std::size_t i = 0; i < growths.size(); ++i) {
      const Sequence& sequence = *growths[i].sequence;
      const std::size_t committed = backend_->committed(sequence.id);
      const std::size_t n_lacking = sequence.text.size() - committed;
      const std::size_t n =
          std::min({n_lacking, static_cast<std::size_t>(backend_->free_slots(sequence.id)),
                    backend_->options().batch_rows - rows.size()});
      caught_up = caught_up && n == n_lacking;
      for (std::size_t j = 0; j < n; ++j) {
        const std::size_t position = committed + j;
        Parent parent = CommittedText{};
        if (j > 0) parent = EarlierRow{rows_of[i].back()};
        rows_of[i].push_back(static_cast<int>(rows.size()));
        rows.push_back({.sequence = sequence.id,
                        .token = sequence.text[position],
                        .position = static_cast<int>(position),
                        .parent = parent,
                        .wants_logits = position + 1 == sequence.text.size()});
      }
      if (n > 0 && n == n_lacking) last.push_back(static_cast<int>(i));
    }
    const Pass pass = backend_->forward(rows);

    std::vector<std::vector<TokenCount>> counts(last.size());
    std::vector<ChoiceRequest> questions;
    for (std::size_t i = 0; i < last.size(); ++i) {
      const Growth& growth = growths[last[i]];
      questions.push_back(
          question(growth, growth.sequence->tree[0], counts[i], rows_of[last[i]].back()));
    }
    const std::vector<Choice> choices = backend_->choose(pass, questions);
    for (std::size_t i = 0; i < last.size(); ++i) add_children(growths[last[i]], 0, choices[i]);

    for (std::size_t i = 0; i < growths.size(); ++i) {
      std::vector<SlotId> path;
      for (int row : rows_of[i]) path.push_back(pass.slots[row]);
      if (!path.empty()) backend_->commit(growths[i].sequence->id, path);
    }
  }
  if (n_unread == 0)
    blend(cost_.fixed_ms, watch.ms());
  else if (n_unread > kUsualCatchUp)
    blend(cost_.per_unread_ms, std::max(0.0, watch.ms() - cost_.fixed_ms) / n_unread);
}

// One pass over the most hopeful nodes without children, at most `width` of each sequence. False if
// there is none that is worth it.
bool ModelDrafter::grow(std::vector<Growth>& growths) {
  const Stopwatch watch;
  struct Grown {
    Growth* growth;
    int node;
  };
  std::vector<Grown> grown;
  std::vector<Row> rows;
  for (Growth& growth : growths) {
    if (growth.ended) continue;
    const DraftLimits& limits = growth.request->limits;
    const Sequence& sequence = *growth.sequence;
    const int length = static_cast<int>(sequence.text.size());
    int n_left = std::min({limits.width, backend_->free_slots(sequence.id),
                           backend_->options().batch_rows - static_cast<int>(rows.size())});
    for (int i : growth.best()) {
      const Node& node = sequence.tree[i];
      if (i == 0 || node.slot || node.depth >= limits.depth) continue;
      const int position = length - 1 + node.depth;
      if (n_left == 0 || node.value < limits.worth || position >= backend_->options().context)
        break;
      --n_left;
      const Node& parent = sequence.tree[node.parent];
      grown.push_back({&growth, i});
      rows.push_back({.sequence = sequence.id,
                      .token = node.token,
                      .position = position,
                      .parent = parent.slot ? Parent{*parent.slot} : Parent{CommittedText{}},
                      .wants_logits = true});
    }
  }
  if (rows.empty()) return false;
  const Pass pass = backend_->forward(rows);

  std::vector<std::vector<TokenCount>> counts(grown.size());
  std::vector<ChoiceRequest> questions;
  for (std::size_t row = 0; row < grown.size(); ++row) {
    const auto& [growth, i] = grown[row];
    Node& node = growth->sequence->tree[i];
    node.slot = pass.slots[row];
    questions.push_back(question(*growth, node, counts[row], static_cast<int>(row)));
  }
  const std::vector<Choice> choices = backend_->choose(pass, questions);
  for (std::size_t row = 0; row < grown.size(); ++row)
    add_children(*grown[row].growth, grown[row].node, choices[row]);
  blend(cost_.per_depth_ms, watch.ms());
  return true;
}

// What the model is asked at a node; `counts` must outlive the request.
ChoiceRequest ModelDrafter::question(const Growth& growth, const Node& node,
                                     std::vector<TokenCount>& counts, int row) const {
  std::vector<Token> path(node.depth);
  for (const Node* at = &node; at->depth > 0; at = &growth.sequence->tree[at->parent])
    path[at->depth - 1] = at->token;
  counts = growth.request->state->counts(path);
  const int position = static_cast<int>(growth.sequence->text.size()) + node.depth;
  ChoiceRequest request = choice_request(growth.sampling, counts, row, position);
  request.allowed = allowed_;
  const int width = growth.request->limits.width;
  request.n_best = request.filters.temperature == 0 ? width : std::max(width, kRivals);
  return request;
}

void ModelDrafter::add_children(Growth& growth, int parent, const Choice& choice) {
  if (!choice.token) {
    growth.ended = true;
    return;
  }
  std::vector<Node>& tree = growth.sequence->tree;
  const std::vector<float> shares = confidences(choice.best, growth.sampling.filters.temperature);
  const std::size_t width = growth.request->limits.width;
  for (std::size_t i = 0; i < std::min(width, choice.best.size()); ++i) {
    tree.push_back({choice.best[i].token, parent, tree[parent].depth + 1, shares[i],
                    tree[parent].value * shares[i], std::nullopt});
  }
}

int ModelDrafter::unread(DraftSequence number) const {
  const Sequence& sequence = sequences_.at(number);
  const int n_lacking = static_cast<int>(sequence.text.size()) - backend_->committed(sequence.id);
  return std::max(0, n_lacking - kUsualCatchUp);
}

void ModelDrafter::measure_costs() {
  constexpr int kRows = 64;
  const SequenceId sequence =
      sequences_.empty() ? backend_->begin() : sequences_.begin()->second.id;
  if (!sequences_.empty()) sequences_.begin()->second.tree.clear();
  backend_->discard(sequence);
  const LoadOptions& options = backend_->options();
  const int room = std::min({options.context - backend_->committed(sequence), options.batch_rows,
                             options.n_slots, kRows});
  if (room > 0) {
    time_pass(*backend_, sequence, 1, 1);  // first touches of memory
    cost_.fixed_ms = cost_.per_depth_ms = time_pass(*backend_, sequence, 1, 1);
    cost_.per_unread_ms = time_pass(*backend_, sequence, room, 1) / room;
  }
  if (sequences_.empty()) backend_->end(sequence);
}

void ModelDrafter::truncate(DraftSequence number, int length) {
  Sequence& sequence = sequences_.at(number);
  CHECK(length >= 0 && length <= static_cast<int>(sequence.text.size()));
  backend_->truncate(sequence.id, std::min(backend_->committed(sequence.id), length));
  sequence.tree.clear();
  sequence.text.resize(length);
  if (sequence.first_unknown && *sequence.first_unknown >= sequence.text.size())
    sequence.first_unknown.reset();
}

void ModelDrafter::end(DraftSequence number) {
  backend_->end(sequences_.at(number).id);
  sequences_.erase(number);
}

}  // namespace outrider

#include "speculation/drafters/model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "speculation/time_pass.h"

namespace outrider {
namespace {

// The number of best scores in the softmax that gives a sampled child's confidence.
constexpr int kRivals = 8;
// Tokens that the pass of node 0 can read without taking noticeably longer.
constexpr int kUsualCatchUp = 16;

// A running mean that counts a slow pass as at most half as slow again, because other work on the
// machine makes passes slow and nothing makes them too fast.
void update_mean(double& mean, double last) {
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

struct ModelDrafter::Draft {
  const DraftRequest* request;
  Sequence* sequence;
  bool ended = false;  // by a row without usable logits

  // As many nodes as may be proposed, in the order of their value; node 0 first.
  std::vector<int> best() const {
    std::vector<int> order(sequence->tree.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>{},
                             [&](int node) { return sequence->tree[node].value; });
    order.resize(std::min<std::size_t>(order.size(), request->limits.nodes + 1));
    return order;
  }

  // Makes the best nodes proposals.
  void hand_over() const {
    const std::vector<Node>& tree = sequence->tree;
    std::vector<int> proposed(tree.size(), 0);  // their numbers in the request's tree
    for (int node : best())
      if (node != 0)
        proposed[node] = request->tree->propose(proposed[tree[node].parent], tree[node].token,
                                                {request->drafter, tree[node].confidence});
  }
};

struct ModelDrafter::Computed {
  Draft* draft;
  int node;
  int row;
};

ModelDrafter::ModelDrafter(std::shared_ptr<Backend> backend, int target_vocabulary)
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
    // The nodes along which the text went on, as far as they were computed, become history.
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
  std::vector<Draft> drafts = start(requests);
  if (drafts.empty()) return;
  int n_levels = 0;
  for (const Draft& draft : drafts) n_levels = std::max(n_levels, draft.request->limits.depth);

  catch_up(drafts);
  for (int level = 2; level <= n_levels; ++level)
    if (!grow(drafts)) break;
  for (const Draft& draft : drafts) draft.hand_over();
}

// A tree of node 0 alone for each request that can be answered.
std::vector<ModelDrafter::Draft> ModelDrafter::start(std::span<const DraftRequest> requests) {
  std::vector<Draft> drafts;
  for (const DraftRequest& request : requests) {
    Sequence& sequence = sequences_.at(request.sequence);
    const int length = static_cast<int>(sequence.text.size());
    if (sequence.first_unknown || length > backend_->options().context) continue;
    const DraftLimits& limits = request.limits;
    if (limits.nodes <= 0 || limits.depth <= 0 || limits.width <= 0) continue;
    // The last token is computed even if the cache has it, because its logits are wanted.
    if (backend_->committed(sequence.id) >= length)
      backend_->truncate(sequence.id, length - 1);
    else
      backend_->discard(sequence.id);
    sequence.tree = {{sequence.text.back(), -1, 0, 1, 1, std::nullopt}};
    drafts.push_back({&request, &sequence});
  }
  return drafts;
}

// Reads all texts to their ends, so node 0 gets its children.
void ModelDrafter::catch_up(std::span<Draft> drafts) {
  const Stopwatch watch;
  int n_unread = 0;
  for (const Draft& draft : drafts) n_unread += unread(draft.request->sequence);
  while (!read(drafts)) {
  }
  if (n_unread == 0)
    update_mean(cost_.fixed_ms, watch.ms());
  else if (n_unread > kUsualCatchUp)
    update_mean(cost_.per_unread_ms, std::max(0.0, watch.ms() - cost_.fixed_ms) / n_unread);
}

Pass ModelDrafter::forward(std::span<const Row> rows) {
  ++n_passes_;
  return backend_->forward(rows);
}

// One pass over tokens that the caches lack; it commits them. True once no text has any left.
bool ModelDrafter::read(std::span<Draft> drafts) {
  std::vector<Row> rows;
  std::vector<std::size_t> n_read;  // [drafts]
  std::vector<Computed> last;
  bool all_read = true;
  for (Draft& draft : drafts) {
    const Sequence& sequence = *draft.sequence;
    const int length = static_cast<int>(sequence.text.size());
    const int first = backend_->committed(sequence.id);
    const int n = std::min({length - first, backend_->free_slots(sequence.id),
                            backend_->options().batch_rows - static_cast<int>(rows.size())});
    for (int position = first; position < first + n; ++position) {
      Parent parent = CommittedText{};
      if (position > first) parent = EarlierRow{static_cast<int>(rows.size()) - 1};
      rows.push_back({.sequence = sequence.id,
                      .token = sequence.text[position],
                      .position = position,
                      .parent = parent,
                      .wants_logits = position + 1 == length});
    }
    n_read.push_back(n);
    if (first + n < length)
      all_read = false;
    else if (n > 0)
      last.push_back({&draft, 0, static_cast<int>(rows.size()) - 1});
  }
  const Pass pass = forward(rows);
  add_children(pass, last);

  std::span<const SlotId> slots = pass.slots;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    if (n_read[i] > 0) backend_->commit(drafts[i].sequence->id, slots.first(n_read[i]));
    slots = slots.subspan(n_read[i]);
  }
  return all_read;
}

// One pass over the best nodes without children, at most `width` of each sequence, which gives them
// children. False if no node may or should have any.
bool ModelDrafter::grow(std::span<Draft> drafts) {
  const Stopwatch watch;
  std::vector<Row> rows;
  std::vector<Computed> computed;
  for (Draft& draft : drafts) {
    if (draft.ended) continue;
    const DraftLimits& limits = draft.request->limits;
    const Sequence& sequence = *draft.sequence;
    const int length = static_cast<int>(sequence.text.size());
    int n_left = std::min({limits.width, backend_->free_slots(sequence.id),
                           backend_->options().batch_rows - static_cast<int>(rows.size())});
    for (int i : draft.best()) {
      const Node& node = sequence.tree[i];
      if (i == 0 || node.slot || node.depth >= limits.depth) continue;
      const int position = length - 1 + node.depth;
      if (n_left == 0 || node.value < limits.min_value || position >= backend_->options().context)
        break;
      --n_left;
      const Node& parent = sequence.tree[node.parent];
      computed.push_back({&draft, i, static_cast<int>(rows.size())});
      rows.push_back({.sequence = sequence.id,
                      .token = node.token,
                      .position = position,
                      .parent = parent.slot ? Parent{*parent.slot} : Parent{CommittedText{}},
                      .wants_logits = true});
    }
  }
  if (rows.empty()) return false;
  const Pass pass = forward(rows);
  for (const Computed& at : computed) at.draft->sequence->tree[at.node].slot = pass.slots[at.row];
  add_children(pass, computed);
  update_mean(cost_.per_depth_ms, watch.ms());
  return true;
}

// The children of a node are the model's best tokens after its path.
void ModelDrafter::add_children(const Pass& pass, std::span<const Computed> nodes) {
  std::vector<std::vector<TokenCount>> counts(nodes.size());
  std::vector<ChoiceRequest> questions;
  for (std::size_t i = 0; i < nodes.size(); ++i) questions.push_back(question(nodes[i], counts[i]));
  const std::vector<Choice> choices = backend_->choose(pass, questions);

  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Choice& choice = choices[i];
    Draft& draft = *nodes[i].draft;
    if (!choice.token) {
      draft.ended = true;
      continue;
    }
    const std::vector<float> given =
        confidences(choice.best, draft.request->sampling->filters.temperature);
    std::vector<Node>& tree = draft.sequence->tree;
    const int parent = nodes[i].node;
    const std::size_t width = draft.request->limits.width;
    for (std::size_t j = 0; j < std::min(width, choice.best.size()); ++j)
      tree.push_back({choice.best[j].token, parent, tree[parent].depth + 1, given[j],
                      tree[parent].value * given[j], std::nullopt});
  }
}

// What the model is asked at a node. The request points into `counts`.
ChoiceRequest ModelDrafter::question(const Computed& computed,
                                     std::vector<TokenCount>& counts) const {
  const DraftRequest& draft = *computed.draft->request;
  const Sequence& sequence = *computed.draft->sequence;
  const Node& node = sequence.tree[computed.node];
  std::vector<Token> path(node.depth);
  for (const Node* at = &node; at->depth > 0; at = &sequence.tree[at->parent])
    path[at->depth - 1] = at->token;
  counts = draft.state->counts(path);
  const int position = static_cast<int>(sequence.text.size()) + node.depth;
  ChoiceRequest request = choice_request(*draft.sampling, counts, computed.row, position);
  request.allowed = allowed_;
  const int width = draft.limits.width;
  request.n_best = request.filters.temperature == 0 ? width : std::max(width, kRivals);
  return request;
}

int ModelDrafter::unread(DraftSequence number) const {
  const Sequence& sequence = sequences_.at(number);
  const int n_lacking = static_cast<int>(sequence.text.size()) - backend_->committed(sequence.id);
  return std::max(0, n_lacking - kUsualCatchUp);
}

ModelDrafter::~ModelDrafter() {
  for (const auto& [number, sequence] : sequences_) backend_->end(sequence.id);
}

void ModelDrafter::measure_costs() {
  constexpr int kRows = 64;
  std::optional<OwnedSequence> own;
  if (sequences_.empty()) own.emplace(*backend_);
  const SequenceId sequence = own ? own->id() : sequences_.begin()->second.id;
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

void ModelDrafter::forget() {
  backend_->remove_added_outputs();
  for (const auto& [number, sequence] : sequences_) backend_->add_outputs(sequence.text);
}

void ModelDrafter::end(DraftSequence number) {
  backend_->end(sequences_.at(number).id);
  sequences_.erase(number);
}

}  // namespace outrider

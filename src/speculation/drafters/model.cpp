#include "speculation/drafters/model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "speculation/time_pass.h"

namespace outrider {
namespace {

// Tokens that the pass of node 0 can read without taking much longer.
constexpr int kUsualCatchUp = 8;
// Rows whose passes are timed before the first proposal; the last tell the cost of reading.
constexpr int kTimedRows[] = {1, 2, 4, 8, 64};
// Guesses for tokens that it reads: at most so many, and of a text that is read from its middle not
// the first few, which tell little.
constexpr int kRehearsedMax = 32, kContextMin = 4;

// By the best other score. Of a token without rival: as sure as one of lead 20.
float confidence(const std::vector<Candidate>& best, std::size_t candidate) {
  const float score = best[candidate].score;
  const float rival = best.size() > 1 ? best[candidate == 0 ? 1 : 0].score : score - 20;
  return 1 / (1 + std::exp(rival - score));
}

}  // namespace

struct ModelDrafter::Draft {
  const DraftRequest* request;
  Sequence* sequence;
  bool ended = false;  // by a row without usable logits

  double acceptance(float confidence, int depth) const {
    return request->worth ? request->worth->acceptance(confidence, depth) : confidence;
  }

  // As many nodes as may be proposed, in the order of their value; node 0 first.
  std::vector<int> best() const {
    std::vector<int> order(sequence->tree.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater<>{},
                             [&](int node) { return sequence->tree[node].value; });
    order.resize(std::min<std::size_t>(order.size(), request->limits.nodes + 1));
    return order;
  }

  // Whether children of these nodes are expected to be worth a level's time.
  bool is_worth_a_level(std::span<const int> nodes) const {
    if (!request->worth) return !nodes.empty();
    std::vector<double> values, expected;
    for (const int node : best())
      if (node != 0) values.push_back(sequence->tree[node].value);
    for (const int node : nodes) {
      const Node& parent = sequence->tree[node];
      expected.push_back(parent.value * request->worth->level(parent.depth + 1));
    }
    return request->worth->level_pays(std::move(values), expected);
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
  CHECK(sequences_
            .try_emplace(sequence, Sequence{.id = backend_->begin(),
                                            .text = {},
                                            .excerpt = {},
                                            .first_unknown = {},
                                            .n_outputs = 0,
                                            .tree = {}})
            .second);
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

  while (!read(drafts)) {  // all texts to their ends, so node 0 gets its children
  }
  for (int level = 2; level <= n_levels; ++level)
    if (!grow(drafts)) break;
  for (const Draft& draft : drafts) draft.hand_over();
}

// A tree of node 0 alone for each request that can be answered.
std::vector<ModelDrafter::Draft> ModelDrafter::start(std::span<const DraftRequest> requests) {
  std::vector<Draft> drafts;
  for (const DraftRequest& request : requests) {
    Sequence& sequence = sequences_.at(request.sequence);
    if (sequence.first_unknown) continue;
    const DraftLimits& limits = request.limits;
    if (limits.nodes <= 0 || limits.depth <= 0 || limits.width <= 0) continue;
    sequence.tree.clear();
    backend_->discard(sequence.id);
    if (const Excerpt next = excerpt(sequence, request.n_context); next != sequence.excerpt) {
      backend_->truncate(sequence.id, next.kept);
      sequence.excerpt = next;
    }
    const int length = sequence.length();
    if (length > backend_->options().context) continue;
    // The last token is computed even if the cache has it, because its logits are wanted.
    if (backend_->committed(sequence.id) >= length) backend_->truncate(sequence.id, length - 1);
    backend_->add_outputs(std::span(sequence.text).subspan(sequence.n_outputs));
    sequence.n_outputs = sequence.text.size();
    sequence.tree = {{sequence.text.back(), -1, 0, 1, 1, std::nullopt}};
    drafts.push_back({&request, &sequence});
  }
  return drafts;
}

// What it reads where it shall know the last n_context tokens.
Excerpt ModelDrafter::excerpt(const Sequence& sequence, int n_context) const {
  return sequence.excerpt.with(n_context, sequence.size(), backend_->committed(sequence.id));
}

int ModelDrafter::unread(DraftSequence number, int n_context) const {
  const Sequence& sequence = sequences_.at(number);
  const int n_read = backend_->committed(sequence.id);
  return std::max(0, sequence.excerpt.n_unread(n_context, sequence.size(), n_read) - kUsualCatchUp);
}

int ModelDrafter::n_known(DraftSequence number, int n_context) const {
  const Sequence& sequence = sequences_.at(number);
  return excerpt(sequence, n_context).n_known(sequence.size());
}

Pass ModelDrafter::forward(std::span<const Row> rows) {
  ++n_passes_;
  return backend_->forward(rows);
}

// One pass over tokens that the caches lack; it commits them. True once no text has any left.
bool ModelDrafter::read(std::span<Draft> drafts) {
  const Stopwatch watch;
  std::vector<Row> rows;
  long length_read = 0;
  std::vector<std::size_t> n_read;  // [drafts]
  std::vector<Computed> last;
  std::vector<Rehearsal> rehearsals;
  bool all_read = true;
  for (Draft& draft : drafts) {
    const Sequence& sequence = *draft.sequence;
    const int length = sequence.length();
    const int first = backend_->committed(sequence.id);
    const int n = std::min({length - first, backend_->free_slots(sequence.id),
                            backend_->options().batch_rows - static_cast<int>(rows.size())});
    const DraftRequest& request = *draft.request;
    const int n_rehearsed = request.rehearsed ? std::min(request.n_rehearsed, kRehearsedMax) : 0;
    for (int position = first; position < first + n; ++position) {
      Parent parent = CommittedText{};
      if (position > first) parent = EarlierRow{static_cast<int>(rows.size()) - 1};
      const int place = sequence.excerpt.place(position);
      const bool rehearses =
          position + 1 < length && position + 1 >= length - n_rehearsed &&
          (!sequence.excerpt.has_gap() || place >= sequence.excerpt.first + kContextMin);
      if (rehearses) rehearsals.push_back({&request, static_cast<int>(rows.size()), place + 1});
      rows.push_back({.sequence = sequence.id,
                      .token = sequence.text[place],
                      .position = position,
                      .parent = parent,
                      .wants_logits = rehearses || position + 1 == length});
    }
    n_read.push_back(n);
    length_read += first + n;
    if (first + n < length)
      all_read = false;
    else if (n > 0)
      last.push_back({&draft, 0, static_cast<int>(rows.size()) - 1});
  }
  const Pass pass = forward(rows);
  add_children(pass, last);
  rehearse(pass, rehearsals);
  curve_.refine(static_cast<int>(rows.size()), watch.ms(), length_read);

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
  long length_read = 0;
  for (Draft& draft : drafts) {
    if (draft.ended) continue;
    const DraftLimits& limits = draft.request->limits;
    const Sequence& sequence = *draft.sequence;
    const int length = sequence.length();
    std::vector<int> nodes;
    int n_left = std::min({limits.width, backend_->free_slots(sequence.id),
                           backend_->options().batch_rows - static_cast<int>(rows.size())});
    for (int i : draft.best()) {
      const Node& node = sequence.tree[i];
      if (i == 0 || node.slot || node.depth >= limits.depth) continue;
      if (n_left == 0 || length - 1 + node.depth >= backend_->options().context) break;
      --n_left;
      nodes.push_back(i);
    }
    if (!draft.is_worth_a_level(nodes)) continue;
    length_read += length;
    for (int i : nodes) {
      const Node& node = sequence.tree[i];
      const Node& parent = sequence.tree[node.parent];
      computed.push_back({&draft, i, static_cast<int>(rows.size())});
      rows.push_back({.sequence = sequence.id,
                      .token = node.token,
                      .position = length - 1 + node.depth,
                      .parent = parent.slot ? Parent{*parent.slot} : Parent{CommittedText{}},
                      .wants_logits = true});
    }
  }
  if (rows.empty()) return false;
  const Pass pass = forward(rows);
  for (const Computed& at : computed) at.draft->sequence->tree[at.node].slot = pass.slots[at.row];
  add_children(pass, computed);
  curve_.refine(static_cast<int>(rows.size()), watch.ms(), length_read);
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
    std::vector<Node>& tree = draft.sequence->tree;
    const int parent = nodes[i].node;
    const std::size_t width = draft.request->limits.width;
    for (std::size_t j = 0; j < std::min(width, choice.best.size()); ++j) {
      const float given = confidence(choice.best, j);
      const int depth = tree[parent].depth + 1;
      tree.push_back({choice.best[j].token, parent, depth, given,
                      tree[parent].value * draft.acceptance(given, depth), std::nullopt});
    }
  }
}

// With the penalties of the whole text, which differ little from those of the tokens before.
void ModelDrafter::rehearse(const Pass& pass, std::span<const Rehearsal> rehearsals) {
  std::vector<std::vector<TokenCount>> counts;
  for (const Rehearsal& rehearsal : rehearsals)
    counts.push_back(rehearsal.request->state->counts());
  std::vector<ChoiceRequest> questions;
  for (std::size_t i = 0; i < rehearsals.size(); ++i) {
    const auto& [request, row, next] = rehearsals[i];
    questions.push_back(choice_request(*request->sampling, counts[i], row, next));
    questions.back().allowed = allowed_;
    questions.back().n_best = 2;
  }
  const std::vector<Choice> choices = backend_->choose(pass, questions);
  for (std::size_t i = 0; i < rehearsals.size(); ++i) {
    const std::vector<Candidate>& best = choices[i].best;
    if (best.empty()) continue;
    const Sequence& sequence = sequences_.at(rehearsals[i].request->sequence);
    const int next = rehearsals[i].next;
    rehearsals[i].request->rehearsed->push_back({confidence(best, 0),
                                                 best[0].token == sequence.text[next],
                                                 sequence.excerpt.n_known(next)});
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
  const int position = static_cast<int>(sequence.text.size()) + node.depth;  // for its noise
  ChoiceRequest request = choice_request(*draft.sampling, counts, computed.row, position);
  request.allowed = allowed_;
  request.n_best = std::max(2, draft.limits.width);
  return request;
}

ModelDrafter::~ModelDrafter() {
  for (const auto& [number, sequence] : sequences_) backend_->end(sequence.id);
}

void ModelDrafter::measure_costs() {
  std::optional<OwnedSequence> own;
  if (sequences_.empty()) own.emplace(*backend_);
  const SequenceId sequence = own ? own->id() : sequences_.begin()->second.id;
  if (!sequences_.empty()) sequences_.begin()->second.tree.clear();
  backend_->discard(sequence);
  const LoadOptions& options = backend_->options();
  const int room = std::min(
      {options.context - backend_->committed(sequence), options.batch_rows, options.n_slots});
  if (room <= 0) return;
  time_pass(*backend_, sequence, 1, 1);  // first touches of memory
  for (const int timed : kTimedRows) {
    const int rows = std::min(timed, room);
    curve_.measure(rows, time_pass(*backend_, sequence, rows, std::min(rows, kUsualCatchUp)));
  }
}

// The most likely level has a row or two for each text.
DraftCost ModelDrafter::cost(int n_texts, int length) const {
  if (curve_.empty()) return {};
  const long all = static_cast<long>(n_texts) * length;
  return {.fixed_ms = curve_.ms(n_texts, all),
          .per_depth_ms = curve_.ms(2 * n_texts, all),
          .per_unread_ms = std::max(0.0, curve_.ms(64, length) - curve_.ms(kUsualCatchUp, length)) /
                           (64 - kUsualCatchUp)};
}

void ModelDrafter::truncate(DraftSequence number, int length) {
  Sequence& sequence = sequences_.at(number);
  CHECK(length >= 0 && length <= static_cast<int>(sequence.text.size()));
  backend_->truncate(sequence.id,
                     std::min(backend_->committed(sequence.id), sequence.excerpt.n_shared(length)));
  sequence.excerpt = sequence.excerpt.cut(length);
  sequence.tree.clear();
  sequence.text.resize(length);
  sequence.n_outputs = std::min(sequence.n_outputs, sequence.text.size());
  if (sequence.first_unknown && *sequence.first_unknown >= sequence.text.size())
    sequence.first_unknown.reset();
}

void ModelDrafter::forget() {
  backend_->remove_added_outputs();
  for (auto& [number, sequence] : sequences_) sequence.n_outputs = 0;
}

void ModelDrafter::end(DraftSequence number) {
  backend_->end(sequences_.at(number).id);
  sequences_.erase(number);
}

}  // namespace outrider

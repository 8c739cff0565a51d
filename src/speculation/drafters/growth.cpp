#include "speculation/drafters/growth.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "speculation/time_pass.h"

namespace outrider {
namespace {

// Rows whose passes are timed before the first proposal; the last tell the cost of prefill.
constexpr int kTimedRows[] = {1, 2, 4, 8, 64};
// Without a price of time: a pass has guesses beside its other rows up to so many, of at least this
// probability.
constexpr int kRowsWithGuesses = 8;
constexpr double kGuessMin = 0.1;
// How often a draw is taken to be accepted where that is not learned.
constexpr double kDrawAcceptance = 0.7;
constexpr double kRecentLeft = 0.9;  // what a proposal leaves of the weight of those before it

}  // namespace

// By the best other score. Of a token without rival: as sure as one of lead 20.
float GrowingDrafter::confidence(const std::vector<Candidate>& best, std::size_t candidate) {
  const float score = best[candidate].score;
  const float rival = best.size() > 1 ? best[candidate == 0 ? 1 : 0].score : score - 20;
  return 1 / (1 + std::exp(rival - score));
}

double GrowingDrafter::Draft::acceptance(float confidence, int depth) const {
  return request->worth ? request->worth->acceptance(confidence, depth) : confidence;
}

double GrowingDrafter::Draft::draw_acceptance(int depth) const {
  return request->worth && request->worth->calibration
             ? request->worth->best_guess_acceptance(depth)
             : kDrawAcceptance;
}

// Whether a node comes before another: it is more likely, or of equal ones less deep, or
// otherwise the one whose path says the smaller token first. Parents come before their children,
// and it does not matter in which order nodes were found.
bool GrowingDrafter::Draft::is_better(int node, int other) const {
  const std::vector<Node>& tree = sequence->tree;
  if (tree[node].value != tree[other].value) return tree[node].value > tree[other].value;
  if (tree[node].depth != tree[other].depth) return tree[node].depth < tree[other].depth;
  bool is_smaller = false;
  for (; node != other; node = tree[node].parent, other = tree[other].parent)
    is_smaller = tree[node].token < tree[other].token;
  return is_smaller;
}

// As many nodes as may be proposed, the best first; the root is the first.
std::vector<int> GrowingDrafter::Draft::best() const {
  std::vector<int> order(sequence->tree.size());
  std::iota(order.begin(), order.end(), 0);
  const auto n = std::min<std::size_t>(order.size(), request->limits.nodes + 1);
  std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(n),
                            [&](int node, int other) { return is_better(node, other); });
  order.resize(n);
  return order;
}

// What children of these nodes are expected to bring; 0: nothing. Of children that are chosen the
// first counts alone.
double GrowingDrafter::Draft::level_gain(std::span<const Parent> parents) const {
  if (!request->worth) return parents.empty() ? 0 : 1;
  std::vector<double> values, expected;
  for (const int node : best())
    if (node != 0) values.push_back(sequence->tree[node].value);
  for (const auto& [node, n_children] : parents) {
    const Node& parent = sequence->tree[node];
    const double acceptance = request->worth->best_guess_acceptance(parent.depth + 1);
    double value = parent.value * acceptance;
    for (int i = 0; i < (request->draws ? n_children : 1); ++i, value *= 1 - acceptance)
      expected.push_back(value);
  }
  return request->worth->level_gain(std::move(values), expected);
}

// The best first. Where children are chosen, the best nodes of which children may be among the
// best: of as many as may be proposed, the last one is better than any child of its own.
std::vector<GrowingDrafter::Draft::Parent> GrowingDrafter::Draft::parents() const {
  std::vector<int> nodes = best();
  const std::vector<int> n_draws = request->draws ? draws() : std::vector<int>();
  if (!request->draws && std::ssize(nodes) > request->limits.nodes) nodes.pop_back();
  std::vector<Parent> parents;
  for (const int node : nodes) {
    if (sequence->tree[node].has_children || sequence->tree[node].depth >= depth_max) continue;
    const int n_children = request->draws ? n_draws[node] : width;
    if (n_children > 0) parents.push_back({node, n_children});
  }
  return parents;
}

int GrowingDrafter::Draft::depth() const {
  int depth = 0;
  for (const int node : best()) depth = std::max(depth, sequence->tree[node].depth);
  return depth;
}

// Of a sequence that draws: how many draws each node shall have that has none yet, [tree.size()],
// so that as many nodes as are left have the largest values, each drawn one an expected
// acceptance. No draw at or below a node has a say in this.
std::vector<int> GrowingDrafter::Draft::draws() const {
  const std::vector<Node>& tree = sequence->tree;
  struct Slot {  // the next draw at a node of the tree (>= 0), or below one that is not drawn yet
    double value;
    int node, depth;
    bool operator<(const Slot& other) const { return value < other.value; }
  };
  std::priority_queue<Slot> slots;
  const auto open = [&](double value, int node, int depth) {
    if (depth <= depth_max) slots.push({value * draw_acceptance(depth), node, depth});
  };
  for (int node = 0; node < std::ssize(tree); ++node)
    if (!tree[node].has_children) open(tree[node].value, node, tree[node].depth + 1);
  std::vector<int> n_draws(tree.size());
  for (auto n_left = request->limits.nodes + 1 - std::ssize(tree); n_left > 0 && !slots.empty();
       --n_left) {
    const auto [value, node, depth] = slots.top();
    slots.pop();
    if (node >= 0) ++n_draws[node];
    if (node < 0 || n_draws[node] < width)
      slots.push({value * (1 - draw_acceptance(depth)), node, depth});
    open(value, -1, depth + 1);
  }
  return n_draws;
}

// Makes the best nodes proposals, and of a sequence that draws all nodes.
void GrowingDrafter::Draft::hand_over() const {
  const std::vector<Node>& tree = sequence->tree;
  std::vector<int> nodes(tree.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  if (!request->draws) nodes = best();
  std::vector<int> proposed(tree.size(), 0);  // their numbers in the request's tree
  for (int node : nodes)
    if (node != 0)
      proposed[node] =
          request->tree->propose(proposed[tree[node].parent], tree[node].token,
                                 {request->drafter, tree[node].confidence, tree[node].drawn_from});
}

int GrowingDrafter::Batch::n_rows(SequenceId sequence) const {
  return static_cast<int>(std::ranges::count(rows, sequence, &Row::sequence));
}

void GrowingDrafter::Batch::ask_root(Draft& draft) {
  Sequence& sequence = *draft.sequence;
  sequence.said = {{sequence.text.back(), -1, 0, sequence.index.end()}};
  asked.push_back({&draft, 0, static_cast<int>(rows.size()) - 1, 1});
}

void GrowingDrafter::Batch::ask_masks(Draft& draft, Token mask, int n) {
  for (int i = 0; i < n; ++i)
    ask(draft, i, mask, draft.sequence->index.end(), EarlierRow{static_cast<int>(rows.size()) - 1},
        1);
}

void GrowingDrafter::Batch::ask_place(Draft& draft, int n) {
  constexpr Token kUnknown = -1;  // no penalty counts it
  Sequence& sequence = *draft.sequence;
  if (n > 0) return ask(draft, n - 1, kUnknown, sequence.index.end(), CommittedEnd{}, 1);
  rows.push_back({.sequence = sequence.id,
                  .token = sequence.text.back(),
                  .position = sequence.length - 1,
                  .wants_logits = true});
  ask_root(draft);
}

void GrowingDrafter::Batch::ask(Draft& draft, int parent, Token token, SuffixText::End end,
                                outrider::Parent parent_row, double probability) {
  Sequence& sequence = *draft.sequence;
  const int depth = sequence.said[parent].depth + 1;
  asked.push_back(
      {&draft, static_cast<int>(sequence.said.size()), static_cast<int>(rows.size()), probability});
  rows.push_back({.sequence = sequence.id,
                  .token = token,
                  .position = sequence.length - 1 + depth,
                  .parent = parent_row,
                  .wants_logits = true});
  if (const std::vector<float>& state = sequence.said[parent].state; !state.empty())
    rows.back().before = std::span<const float>(state);
  sequence.said.push_back({token, parent, depth, end});
}

std::optional<int> GrowingDrafter::Sequence::find_said(int parent, Token token) const {
  for (int i = parent + 1; i < std::ssize(said); ++i)
    if (said[i].parent == parent && said[i].token == token) return i;
  return std::nullopt;
}

void GrowingDrafter::Sequence::forget_draft() {
  said.clear();
  text_end.clear();
  tree.clear();
}

GrowingDrafter::GrowingDrafter(std::shared_ptr<Backend> backend, Options options)
    : backend_(std::move(backend)),
      options_(std::move(options)),
      guesser_(options_.memory_bytes == 0
                   ? 0
                   : std::max(backend_->spec().vocabulary, options_.target_vocabulary)) {
  const int n = backend_->spec().vocabulary;
  if (n > options_.target_vocabulary && backend_->options().output_names.empty()) {
    allowed_.assign((n + 63) / 64, 0);
    for (int token = 0; token < options_.target_vocabulary; ++token)
      allowed_[token / 64] |= std::uint64_t{1} << (token % 64);
  }
}

void GrowingDrafter::add(DraftSequence number, SequenceId id) {
  CHECK(sequences_.try_emplace(number, Sequence{id, SuffixText(options_.memory_bytes)}).second);
}

void GrowingDrafter::observe(DraftSequence number, std::span<const Token> tokens) {
  Sequence& sequence = sequences_.at(number);
  sequence.forget_draft();
  sequence.text.insert(sequence.text.end(), tokens.begin(), tokens.end());
}

void GrowingDrafter::truncate(DraftSequence number, int length) {
  Sequence& sequence = sequences_.at(number);
  CHECK(length >= 0 && length <= sequence.size());
  sequence.forget_draft();
  sequence.text.resize(length);
  sequence.index.truncate(std::min(sequence.index.size(), sequence.text.size()));
}

void GrowingDrafter::end(DraftSequence number) {
  CHECK(sequences_.erase(number) == 1);
}

void GrowingDrafter::forget() {
  guesser_.forget();
  recent_levels_ = recent_passes_ = 0;
}

void GrowingDrafter::propose(std::span<const DraftRequest> requests) {
  std::vector<Draft> drafts = start(requests);
  if (drafts.empty()) return;
  double passes = 0;
  while (!prefill(drafts, passes)) {  // all sequences to their ends, so the root gets its children
  }
  bool has_grown = false;
  for (;; has_grown = true) {
    for (Draft& draft : drafts) expand(draft);
    if (!grow(drafts, passes)) break;
  }
  int n_levels = 0;
  for (const Draft& draft : drafts) {
    draft.hand_over();
    n_levels = std::max(n_levels, draft.depth());
  }
  n_levels_ += n_levels;
  // What is not tried for a while returns to what is usual.
  recent_levels_ *= kRecentLeft;
  recent_passes_ *= kRecentLeft;
  if (n_levels > 1 || has_grown) {
    recent_levels_ += n_levels - 1;
    recent_passes_ += passes;
  }
  finish(drafts);
}

// A tree of its root alone for each request that can be answered.
std::vector<GrowingDrafter::Draft> GrowingDrafter::start(std::span<const DraftRequest> requests) {
  std::vector<Draft> drafts;
  int n_promised = 0;
  for (const DraftRequest& request : requests) {
    Sequence& sequence = sequences_.at(request.sequence);
    const DraftLimits& limits = request.limits;
    if (limits.nodes <= 0 || limits.depth <= 0 || limits.width <= 0) continue;
    sequence.forget_draft();
    backend_->discard(sequence.id);
    if (!prepare(request, sequence, requests, n_promised)) continue;
    sequence.index.append(std::span(sequence.text).subspan(sequence.index.size()));
    sequence.tree = {{sequence.text.back(), -1, 0, 1, 1, 0}};
    // Nodes of one depth of a model that guesses in parallel share their draws, so how many one of
    // them gets must not depend on the others': there is one of each depth.
    const bool is_chain = options_.n_parallel && request.draws;
    drafts.push_back({&request, &sequence, is_chain ? 1 : limits.width,
                      std::min(limits.depth, options_.depth_max)});
  }
  return drafts;
}

int GrowingDrafter::free_rows(const Sequence& sequence) const {
  const int n_free = backend_->free_slots(sequence.id);
  const int n_used = backend_->options().n_slots - n_free;
  return std::min(n_free, sequence.n_rows_max - n_used);
}

// What is known already of what follows a child of a node.
std::optional<int> GrowingDrafter::said_after(const Sequence& sequence, int parent, int depth,
                                              Token token) const {
  if (!options_.n_parallel) return sequence.find_said(*sequence.tree[parent].said, token);
  return depth < std::ssize(sequence.said) ? std::optional(depth) : std::nullopt;
}

// Gives children to all of the best nodes whose answers are known.
void GrowingDrafter::expand(Draft& draft) const {
  Sequence& sequence = *draft.sequence;
  std::vector<Node>& tree = sequence.tree;
  while (!draft.ended) {
    const std::vector<Draft::Parent> parents = draft.parents();
    const auto next = std::ranges::find_if(
        parents, [&](const Draft::Parent& parent) { return tree[parent.node].said.has_value(); });
    if (next == parents.end()) return;
    const auto [parent, n_children] = *next;
    tree[parent].has_children = true;
    const Said& said = sequence.said[*tree[parent].said];
    const std::vector<Candidate>& answers = said.best;
    draft.ended = answers.empty();
    const auto n = std::min(static_cast<std::size_t>(n_children), answers.size());
    for (std::size_t i = 0; i < n; ++i) {
      const float by_lead = confidence(answers, i);
      const float by_head =
          said.confidence ? (i == 0 ? *said.confidence : std::min(by_lead, 1 - *said.confidence))
                          : by_lead;
      const float given = draft.request->draws ? answers[i].probability : by_head;
      const int depth = tree[parent].depth + 1;
      tree.push_back({.token = answers[i].token,
                      .parent = parent,
                      .depth = depth,
                      .confidence = given,
                      .value = tree[parent].value * draft.acceptance(given, depth),
                      .said = said_after(sequence, parent, depth, answers[i].token),
                      .drawn_from = said.distribution});
    }
  }
}

// One pass over the best nodes that are not computed, at most `width` of each sequence, and over
// guesses at what follows them. All texts wait for it, so those go on that together gain more than
// it costs. False if none do.
bool GrowingDrafter::grow(std::span<Draft> drafts, double& passes) {
  if (options_.n_parallel) return false;
  const Stopwatch watch;
  struct Growth {
    Draft* draft;
    std::vector<Draft::Parent> parents;
    double gain;
  };
  std::vector<Growth> growing;
  long length = 0;
  int n_rows = 0;
  for (Draft& draft : drafts) {
    if (draft.ended) continue;
    const DraftLimits& limits = draft.request->limits;
    const Sequence& sequence = *draft.sequence;
    std::vector<Draft::Parent> parents;
    const int n_text_end = missing_text_end(sequence) ? 1 : 0;
    const int n_free = options_.rows_are_in_cache ? free_rows(sequence) : limits.width;
    int n_left = std::min(
        {limits.width, n_free - n_text_end, backend_->options().batch_rows - n_rows - n_text_end});
    for (const Draft::Parent& parent : draft.parents()) {
      const int depth = sequence.tree[parent.node].depth;
      if (n_left <= 0 || sequence.length - 1 + depth >= backend_->options().context) break;
      --n_left;
      parents.push_back(parent);
    }
    const double gain = draft.level_gain(parents);
    if (gain <= 0) continue;
    n_rows += static_cast<int>(parents.size()) + n_text_end;
    length += sequence.length;
    growing.push_back({&draft, std::move(parents), gain});
  }
  if (growing.empty()) return false;
  std::ranges::stable_sort(growing, std::greater<>{}, &Growth::gain);
  std::vector<double> gains;
  for (const Growth& growth : growing) gains.push_back(growth.gain);
  const DraftWorth* const worth = growing[0].draft->request->worth;
  const long usual_length = length / std::ssize(growing);
  growing.resize(n_that_share(
      gains, [&](int n) { return worth ? worth->ms_price * level_ms(n, n * usual_length) : 0; }));
  if (growing.empty()) return false;

  Batch batch;
  std::vector<Draft*> guessing;
  struct TextEnd {
    Sequence* sequence;
    int row;
  };
  std::vector<TextEnd> text_ends;
  for (const auto& [draft, parents, gain] : growing) {
    Sequence& sequence = *draft->sequence;
    guessing.push_back(draft);
    batch.length += sequence.length;
    const std::optional<Row> text_end = missing_text_end(sequence);
    if (text_end) {
      text_ends.push_back({&sequence, static_cast<int>(batch.rows.size())});
      batch.rows.push_back(*text_end);
    }
    for (const Draft::Parent& next : parents) {
      Node& node = sequence.tree[next.node];
      const int parent = *sequence.tree[node.parent].said;
      const Said& said = sequence.said[parent];
      node.said = static_cast<int>(sequence.said.size());
      Parent parent_row = CommittedEnd{};
      if (said.slot) parent_row = *said.slot;
      if (text_end && parent == 0) parent_row = EarlierRow{text_ends.back().row};
      batch.ask(*draft, parent, node.token, sequence.index.after(said.end, node.token), parent_row,
                node.value / sequence.tree[parents[0].node].value);
    }
  }
  add_guesses(batch, guessing);
  const PassWork work = work_of(batch);
  const Pass pass = compute(batch);
  for (const auto& [sequence, row] : text_ends) sequence->said[0].slot = pass.slots[row];
  curve_.refine(work, watch.ms());
  passes += curve_.ms(work) / usual_pass_ms(std::ssize(growing), batch.length);
  return true;
}

// Rows for what the model may say at the end of the paths that are asked about, the most likely
// first.
void GrowingDrafter::add_guesses(Batch& batch, std::span<Draft* const> drafts) const {
  if (options_.memory_bytes == 0) return;
  struct Branch {
    double probability;
    Batch::Asked parent;
    Guesser::Guess guess;
    bool operator<(const Branch& other) const { return probability < other.probability; }
  };
  std::priority_queue<Branch> branches;
  const auto add = [&](const Batch::Asked& parent) {
    const Sequence& sequence = *parent.draft->sequence;
    const Said& said = sequence.said[parent.said];
    const int depth = said.depth + 1;
    if (depth >= parent.draft->request->limits.depth ||
        sequence.length - 1 + depth >= backend_->options().context)
      return;
    for (const Guesser::Guess& guess : guesser_.guesses(sequence.index, said.end, said.token))
      if (own(guess.token)) branches.push({parent.probability * guess.probability, parent, guess});
  };
  for (const Batch::Asked& asked : batch.asked)
    if (std::ranges::find(drafts, asked.draft) != drafts.end()) add(asked);
  while (!branches.empty()) {
    const auto [probability, parent, guess] = branches.top();
    branches.pop();
    const DraftRequest& request = *parent.draft->request;
    const Sequence& sequence = *parent.draft->sequence;
    const int n_rows = static_cast<int>(batch.rows.size());
    if (n_rows >= backend_->options().batch_rows || !guess_pays(request, probability, n_rows))
      return;
    // Nodes have the first right to the cache.
    if (free_rows(sequence) - batch.n_rows(sequence.id) <= request.limits.nodes) continue;
    batch.ask(*parent.draft, parent.said, guess.token, guess.end, EarlierRow{parent.row},
              probability);
    add(batch.asked.back());
  }
}

// Whether a guess of this probability, which may save a pass, is worth a row beside so many others.
bool GrowingDrafter::guess_pays(const DraftRequest& request, double probability, int n_rows) const {
  if (!request.worth || request.worth->row_prices.empty() || curve_.empty())
    return n_rows < kRowsWithGuesses && probability >= kGuessMin;
  return probability * usual_pass_ms(1, 0) > curve_.ms(n_rows + 1) - curve_.ms(n_rows);
}

// Logits do not count: the curve was measured with those of a few rows.
PassWork GrowingDrafter::work_of(const Batch& batch) const {
  PassWork work{.rows = static_cast<int>(batch.rows.size())};
  if (!options_.rows_are_in_cache) return work;
  std::set<SequenceId> sequences;
  for (const Row& row : batch.rows) {
    const double reading = attended(backend_->spec(), row.position, 0);
    work.attended += attended(backend_->spec(), row.position, 1) - reading;
    if (sequences.insert(row.sequence).second) work.attended += reading;
  }
  return work;
}

Pass GrowingDrafter::compute(const Batch& batch, const ForwardOptions& passes) {
  ++n_passes_;
  std::vector<Row> rows = batch.rows;
  for (const Batch::Asked& asked : batch.asked) {
    const Sequence& sequence = *asked.draft->sequence;
    const Said& said = sequence.said[asked.said];
    Row& row = rows[asked.row];
    if (said.depth > 0) row.token = *own(row.token);
    if (auto before = state_before(sequence, said)) row.before = *before;
  }
  Pass pass = backend_->forward(rows, passes);
  std::vector<std::vector<TokenCount>> counts(batch.asked.size());
  std::vector<ChoiceRequest> questions;
  for (std::size_t i = 0; i < batch.asked.size(); ++i) {
    const auto& asked = batch.asked[i];
    questions.push_back(question(*asked.draft, asked.said, asked.row, counts[i]));
  }
  const std::vector<Choice> choices = backend_->choose(pass, questions);
  for (std::size_t i = 0; i < batch.asked.size(); ++i) {
    const auto& asked = batch.asked[i];
    Said& said = asked.draft->sequence->said[asked.said];
    said.slot = pass.slots[asked.row];
    if (options_.has_state && !passes.taps.empty())
      said.state = backend_->read_tap(pass, 0, asked.row);
    if (!choices[i].token) continue;
    said.best = choices[i].best;
    said.confidence = backend_->read_confidence(pass, asked.row);
    if (asked.draft->request->draws) {
      // A probability may be too small for a float: such a token is not drawn.
      std::erase_if(said.best, [](const Candidate& drawn) { return drawn.probability <= 0; });
      said.distribution = std::make_shared<const Distribution>(choices[i].probabilities);
      continue;  // a draw tells little of what the model will say
    }
    if (options_.memory_bytes > 0) guesser_.learn(said.token, said.best);
  }
  return pass;
}

// What the model is asked after a path. The request points into `counts`.
ChoiceRequest GrowingDrafter::question(const Draft& draft, int said, int row,
                                       std::vector<TokenCount>& counts) const {
  const DraftRequest& request = *draft.request;
  const Sequence& sequence = *draft.sequence;
  const int depth = sequence.said[said].depth;
  std::vector<Token> path(depth);
  for (int at = said; sequence.said[at].depth > 0; at = sequence.said[at].parent)
    path[sequence.said[at].depth - 1] = sequence.said[at].token;
  counts = request.state->counts(path);
  const int length = sequence.size();
  ChoiceRequest question = choice_request(*request.sampling, counts, row, length + depth);
  question.allowed = allowed_;
  question.n_best = std::max(2, request.limits.width);
  if (request.draws) {
    // Each place in what it said is asked about once in a step.
    constexpr int kPlacesMax = 1 << 16;
    CHECK(said < kPlacesMax);
    question.noise.position = static_cast<std::uint32_t>(length);
    question.noise.use = NoiseUse::draft;
    question.noise.node = static_cast<std::uint32_t>(request.drafter * kPlacesMax + said);
    question.wants_probabilities = true;
  }
  return question;
}

void GrowingDrafter::time_passes(SequenceId sequence, const StateBefore& before) {
  backend_->discard(sequence);
  const LoadOptions& options = backend_->options();
  const int room = std::min(
      {options.context - backend_->committed(sequence), options.batch_rows, options.n_slots});
  if (room <= 0) return;
  time_pass(*backend_, sequence, 1, 1, options_.passes, before);  // first touches of memory
  for (const int timed : kTimedRows) {
    const int rows = std::min(timed, room);
    curve_.measure(rows, time_pass(*backend_, sequence, rows, std::min(rows, kUsualCatchUp),
                                   options_.passes, before));
  }
}

double GrowingDrafter::passes_beside(const PassWork& work, int n_rows, std::size_t n_sequences,
                                     long length) const {
  return (curve_.ms(work) - curve_.ms({.rows = n_rows, .attended = work.attended})) /
         usual_pass_ms(n_sequences, length);
}

// What levels after the first are counted in: a pass over two rows of each sequence. 0 before the
// first.
double GrowingDrafter::usual_pass_ms(std::size_t n_sequences, long length) const {
  if (curve_.empty()) return 0;
  const auto n = static_cast<int>(n_sequences);
  if (!options_.rows_are_in_cache) return curve_.ms(2 * n);
  return curve_.ms(
      {.rows = 2 * n, .attended = n * attended(backend_->spec(), static_cast<int>(length / n), 2)});
}

// That a level after the first takes, with guesses for them in the pass that prefills. Begins as
// one.
double GrowingDrafter::passes_per_level() const {
  return (1 + recent_passes_) / (1 + recent_levels_);
}

double GrowingDrafter::level_ms(std::size_t n_sequences, long length) const {
  return usual_pass_ms(n_sequences, length) * passes_per_level();
}

DraftCost GrowingDrafter::cost(int n_sequences, int length) const {
  if (curve_.empty()) return {};
  const long all = static_cast<long>(n_sequences) * length;
  const double positions = n_sequences * attended(backend_->spec(), length, 1);
  const auto prefill_ms = [&](int n) {
    return curve_.ms({.rows = n, .attended = attended(backend_->spec(), length / 2, n)});
  };
  return {.fixed_ms = curve_.ms({.rows = n_sequences, .attended = positions}),
          .per_depth_ms = level_ms(n_sequences, all),
          .per_prefill_ms =
              std::max(0.0, prefill_ms(64) - prefill_ms(kUsualCatchUp)) / (64 - kUsualCatchUp),
          .is_old = curve_.is_old()};
}

}  // namespace outrider

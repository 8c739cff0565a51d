#include "speculation/drafters/model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "cache/cache.h"

namespace outrider {
namespace {

// Guesses for tokens that it prefills: at most so many, and of a sequence of which it knows only
// the end not the first few, which tell little.
constexpr int kPrefillGuessesMax = 32, kContextMin = 4;
// Of a text's rows, where pages are short: two for its draft, one for what it reads.
constexpr int kScratchPages = 3;

// How many of the tokens that a text lacks are in a pass with room for so many rows. Masks are in
// the pass of the last token. Where they do not fit, that token waits for the next pass, so that
// neither the length of a prompt nor other texts change how many tokens the model guesses. Once
// it is alone in a pass, waiting does not help.
int n_in_pass(int n_lacking, int n_masks, int room, bool is_first) {
  const int n = std::min(n_lacking, room);
  if (n < n_lacking || n + n_masks <= room) return n;
  return n == 1 && is_first ? 1 : n - 1;
}

}  // namespace

ModelDrafter::ModelDrafter(std::shared_ptr<Backend> backend, ModelDrafterOptions options)
    : GrowingDrafter(std::move(backend),
                     {.target_vocabulary = options.target_vocabulary,
                      .memory_bytes = options.memory_bytes,
                      .n_parallel = options.mask ? std::optional(options.n_parallel) : std::nullopt,
                      .mask = options.mask}),
      name_(options.name),
      vocabulary_(std::move(options.vocabulary)) {}

std::optional<Token> ModelDrafter::own(Token token) const {
  return vocabulary_ ? vocabulary_->own(token) : GrowingDrafter::own(token);
}

std::optional<int> ModelDrafter::Known::begins(int n) const {
  const auto found = std::ranges::lower_bound(ends, n);
  if (found == ends.end() || *found != n) return std::nullopt;
  return static_cast<int>(found - ends.begin()) + 1;
}

void ModelDrafter::begin(DraftSequence number, CacheScope scope) {
  add(number, backend_->begin(scope));
  Known known;
  if (vocabulary_ && vocabulary_->first()) known.read = {*vocabulary_->first()};
  CHECK(known_.try_emplace(number, std::move(known)).second);
}

void ModelDrafter::observe(DraftSequence number, std::span<const Token> tokens) {
  Sequence& sequence = sequences_.at(number);
  if (!sequence.said.empty()) {
    // The path along which the text went on, as far as it was computed, becomes history.
    std::vector<SlotId> path = sequence.text_end;
    int at = 0;
    for (Token token : tokens) {
      const auto next = sequence.find_said(at, token);
      if (!next) break;
      path.push_back(*sequence.said[*next].slot);
      at = *next;
    }
    // Since the draft other sequences may have taken free pages: what lacks room is prefilled
    // again.
    if (backend_->pages_wanted(sequence.id, 0, static_cast<int>(path.size())) >
        backend_->free_pages())
      path.clear();
    backend_->commit(sequence.id, path);
  }
  Known& known = known_.at(number);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::span<const Token> own_tokens =
        vocabulary_ ? vocabulary_->read(tokens[i]) : tokens.subspan(i, 1);
    known.read.insert(known.read.end(), own_tokens.begin(), own_tokens.end());
    known.ends.push_back(known.size());
    if (!vocabulary_ && !known.first_unknown && !own(tokens[i]))
      known.first_unknown = sequence.text.size() + i;
  }
  GrowingDrafter::observe(number, tokens);
  reuse_prefix(sequence, known);
}

// Cached pages of the sequence, so that n_to_prefill() does not count them.
void ModelDrafter::reuse_prefix(const Sequence& sequence, const Known& known) {
  const int n_to_prefill = known.size() - backend_->committed(sequence.id);
  if (known.excerpt.has_gap() || known.first_unknown || n_to_prefill <= kPagePositions) return;
  const std::span<const Token> text = known.read;
  const auto context = static_cast<std::size_t>(backend_->options().context);
  backend_->reuse_prefix(sequence.id, text.first(std::min(text.size() - 1, context)));
}

bool ModelDrafter::prepare(const DraftRequest& request, Sequence& sequence,
                           std::span<const DraftRequest> all, int& n_promised) {
  Known& known = known_.at(request.sequence);
  if (known.first_unknown || known.read.empty()) return false;
  if (const Excerpt next = excerpt(sequence, known, request.n_context); next != known.excerpt) {
    backend_->truncate(sequence.id, next.kept);
    known.excerpt = next;
  }
  sequence.length = known.excerpt.length(known.size());
  if (sequence.length > backend_->options().context) return false;
  // The last token is computed even if the cache has it, because its logits are wanted.
  if (backend_->committed(sequence.id) >= sequence.length)
    backend_->truncate(sequence.id, sequence.length - 1);
  if (!make_room(sequence, request, all, n_promised)) return false;
  add_outputs(sequence, known);
  return true;
}

// Makes sure that there are pages for a proposal beside those promised to others: for the sequence
// and a path to become history, and for rows.
bool ModelDrafter::make_room(Sequence& sequence, const DraftRequest& request,
                             std::span<const DraftRequest> requests, int& n_promised) {
  const LoadOptions& options = backend_->options();
  const int length = std::min(sequence.length + request.limits.depth, options.context);
  const int n_history =
      backend_->pages_wanted(sequence.id, 0, length - backend_->committed(sequence.id));
  const int n_wanted = std::min(kScratchPages, pages_for(options.n_slots));
  const auto n_free = [&] { return backend_->free_pages() - n_promised - n_history; };
  for (const auto& [number, other] : sequences_) {
    if (n_free() >= n_wanted) break;
    if (std::ranges::find(requests, number, &DraftRequest::sequence) == requests.end())
      suspend(number);
  }
  if (n_free() < 1) return false;
  const int share = n_free() / static_cast<int>(requests.size());
  const int n_scratch = std::min(n_free(), std::max(n_wanted, share));
  sequence.n_rows_max = n_scratch * kPagePositions;
  n_promised += n_history + n_scratch;
  return true;
}

// Of what it reads after the gap, if there is one.
void ModelDrafter::add_outputs(const Sequence& sequence, Known& known) {
  if (vocabulary_) return;  // all that it has
  const std::span<const Token> text = sequence.text;
  auto& [first, end] = known.outputs;
  const int wanted = known.excerpt.has_gap() ? known.excerpt.first : 0;
  if (wanted > end) first = end = wanted;
  if (wanted < first) {
    backend_->add_outputs(text.subspan(wanted, first - wanted));
    first = wanted;
  }
  backend_->add_outputs(text.subspan(end));
  end = sequence.size();
}

// What it prefills where it shall know the last n_context tokens.
Excerpt ModelDrafter::excerpt(const Sequence& sequence, const Known& known, int n_context) const {
  return known.excerpt.with(n_context, known.size(), backend_->committed(sequence.id));
}

int ModelDrafter::n_to_prefill(DraftSequence number, int n_context) const {
  const Sequence& sequence = sequences_.at(number);
  const int n_computed = backend_->committed(sequence.id);
  const Known& known = known_.at(number);
  const int n = known.excerpt.n_to_prefill(n_context, known.size(), n_computed);
  return n > kUsualCatchUp ? n - 1 : 0;  // the last one belongs to every pass
}

int ModelDrafter::n_known(DraftSequence number, int n_context) const {
  const Sequence& sequence = sequences_.at(number);
  const Known& known = known_.at(number);
  return excerpt(sequence, known, n_context).n_known(known.size());
}

// One pass over tokens that the caches lack. True once no sequence lacks any. It commits them, but
// where guesses stand below the last one, which would be dropped.
bool ModelDrafter::prefill(std::span<Draft> drafts, double& passes) {
  const Stopwatch watch;
  struct Part {
    Sequence* sequence;
    int first_row, n_rows;
  };
  Batch batch;
  std::vector<Part> parts;
  std::vector<Draft*> guessing;
  std::vector<GuessedRow> guessed_rows;
  bool is_complete = true;
  for (Draft& draft : drafts) {
    Sequence& sequence = *draft.sequence;
    const Known& known = known_.at(draft.request->sequence);
    if (!sequence.said.empty()) continue;
    std::vector<Row>& rows = batch.rows;
    const int length = sequence.length;
    const int first = backend_->committed(sequence.id);
    const int first_row = static_cast<int>(rows.size());
    const DraftRequest& request = *draft.request;
    const int n_masks = options_.mask
                            ? std::min({*options_.n_parallel - 1, request.limits.depth - 1,
                                        backend_->options().context - length})
                            : 0;
    const int room = std::min(free_rows(sequence), backend_->options().batch_rows - first_row);
    const int n = n_in_pass(length - first, n_masks, room, first_row == 0);
    const int n_prefill_guesses =
        request.prefill_guesses ? std::min(request.n_prefill_guesses, kPrefillGuessesMax) : 0;
    for (int position = first; position < first + n; ++position) {
      Parent parent = CommittedEnd{};
      if (position > first) parent = EarlierRow{static_cast<int>(rows.size()) - 1};
      const int place = known.excerpt.place(position);
      const auto next = known.begins(place + 1);
      const bool guesses = next && position + 1 < length &&
                           position + 1 >= length - n_prefill_guesses &&
                           (!known.excerpt.has_gap() || place >= known.excerpt.first + kContextMin);
      if (guesses)
        guessed_rows.push_back({&request, static_cast<int>(rows.size()), *next, place + 1});
      rows.push_back({.sequence = sequence.id,
                      .token = known.read[place],
                      .position = position,
                      .parent = parent,
                      .wants_logits = guesses || position + 1 == length});
    }
    parts.push_back({&sequence, first_row, n});
    batch.length += first + n;
    if (first + n < length) {
      is_complete = false;
    } else {
      batch.ask_root(draft);
      if (options_.mask)
        batch.ask_masks(draft, *options_.mask, std::min(n_masks, room - n));
      else if (n <= kUsualCatchUp)
        guessing.push_back(&draft);
    }
  }
  const int n_rows = static_cast<int>(batch.rows.size());
  add_guesses(batch, guessing);
  const PassWork work = work_of(batch);
  const Pass pass = compute(batch);
  guess_prefilled(pass, guessed_rows);
  curve_.refine(work, watch.ms());
  passes += passes_beside(work, n_rows, drafts.size(), batch.length);

  for (const auto& [sequence, first_row, n_rows] : parts) {
    const auto slots = std::span(pass.slots).subspan(first_row, n_rows);
    if (batch.n_rows(sequence->id) > n_rows) {
      sequence->text_end.assign(slots.begin(), slots.end());
    } else {
      backend_->commit(sequence->id, slots);
      if (!sequence->said.empty()) sequence->said[0].slot.reset();
    }
  }
  return is_complete;
}

// With the penalties of the whole text, which differ little from those of the tokens before.
void ModelDrafter::guess_prefilled(const Pass& pass, std::span<const GuessedRow> guessed_rows) {
  std::vector<std::vector<TokenCount>> counts;
  for (const GuessedRow& guessed : guessed_rows) counts.push_back(guessed.request->state->counts());
  std::vector<ChoiceRequest> questions;
  for (std::size_t i = 0; i < guessed_rows.size(); ++i) {
    const auto& [request, row, next, n_read] = guessed_rows[i];
    questions.push_back(choice_request(*request->sampling, counts[i], row, next));
    questions.back().allowed = allowed_;
    questions.back().n_best = 2;
  }
  const std::vector<Choice> choices = backend_->choose(pass, questions);
  for (std::size_t i = 0; i < guessed_rows.size(); ++i) {
    const std::vector<Candidate>& best = choices[i].best;
    if (best.empty()) continue;
    const auto& [request, row, next, n_read] = guessed_rows[i];
    const DraftSequence number = request->sequence;
    request->prefill_guesses->push_back({confidence(best, 0),
                                         best[0].token == sequences_.at(number).text[next],
                                         known_.at(number).excerpt.n_known(n_read)});
  }
}

ModelDrafter::~ModelDrafter() {
  for (const auto& [number, sequence] : sequences_) backend_->end(sequence.id);
}

void ModelDrafter::measure_costs() {
  if (sequences_.empty()) return time_passes(OwnedSequence(*backend_).id());
  sequences_.begin()->second.forget_draft();
  time_passes(sequences_.begin()->second.id);
}

void ModelDrafter::truncate(DraftSequence number, int length) {
  const Sequence& sequence = sequences_.at(number);
  Known& known = known_.at(number);
  const int n_first = vocabulary_ && vocabulary_->first() ? 1 : 0;
  const int n_read = length == 0 ? n_first : known.ends[length - 1];
  backend_->truncate(sequence.id,
                     std::min(backend_->committed(sequence.id), known.excerpt.n_shared(n_read)));
  known.excerpt = known.excerpt.cut(n_read);
  known.read.resize(n_read);
  known.ends.resize(length);
  known.outputs.end = std::min(known.outputs.end, length);
  known.outputs.first = std::min(known.outputs.first, length);
  if (known.first_unknown && static_cast<int>(*known.first_unknown) >= length)
    known.first_unknown.reset();
  GrowingDrafter::truncate(number, length);
}

void ModelDrafter::suspend(DraftSequence number) {
  Sequence& sequence = sequences_.at(number);
  backend_->truncate(sequence.id, 0);
  known_.at(number).excerpt = {};
  sequence.forget_draft();
}

void ModelDrafter::forget() {
  GrowingDrafter::forget();
  backend_->remove_added_outputs();
  for (auto& [number, known] : known_) known.outputs = {};
}

void ModelDrafter::end(DraftSequence number) {
  backend_->end(sequences_.at(number).id);
  known_.erase(number);
  GrowingDrafter::end(number);
}

}  // namespace outrider

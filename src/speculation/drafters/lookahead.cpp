#include "speculation/drafters/lookahead.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"
#include "speculation/drafter_kind.h"

namespace outrider {
namespace {

constexpr int kRidersMax = 60;      // 15 columns of 4 tokens, as the paper's largest windows for 7B
constexpr std::size_t kNGrams = 8;  // of one first token

// Of a column, for so many rows: tall ones give longer drafts, but take longer to fill.
int height_for(int rows) {
  if (rows < 4) return 1;
  if (rows < 12) return 2;
  return rows < 32 ? 3 : 4;
}

}  // namespace

void LookaheadDrafter::begin(DraftSequence sequence, CacheScope) {
  CHECK(sequences_.try_emplace(sequence).second);
}

// The window's places are now so many tokens nearer.
void LookaheadDrafter::observe(DraftSequence number, std::span<const Token> tokens) {
  Sequence& sequence = sequences_.at(number);
  sequence.text.insert(sequence.text.end(), tokens.begin(), tokens.end());
  std::vector<Column>& window = sequence.window;
  const auto n = std::min(window.size(), tokens.size());
  window.erase(window.begin(), window.begin() + static_cast<std::ptrdiff_t>(n));
}

int LookaheadDrafter::riders_max() const {
  return kRidersMax;
}

std::vector<Rider> LookaheadDrafter::riders(DraftSequence number, int rows, int depth) {
  Sequence& sequence = sequences_.at(number);
  const int height = std::min(height_for(rows), depth);
  const int width = height < 1 ? 0 : std::min(rows / height, depth - height + 1);
  if (width < 1 || sequence.text.empty()) return {};
  std::vector<Column>& window = sequence.window;
  window.resize(width);
  sequence.height = height;
  std::vector<Rider> riders;
  for (Column& column : window) {
    if (column.empty()) column = {sequence.text[sequence.n_begun++ % sequence.text.size()]};
    // Tokens beyond the height were said last, and are dropped.
    if (std::ssize(column) > height) column.resize(height);
    riders.push_back({column[0], static_cast<int>(riders.size()) - 1});
  }
  for (int i = 0; i < width; ++i) {
    int parent = i;
    for (const Token token : std::span(window[i]).subspan(1)) {
      riders.push_back({token, parent});
      parent = static_cast<int>(riders.size()) - 1;
    }
  }
  return riders;
}

// A column that is complete moves on by a place, where it replaces a shorter one.
void LookaheadDrafter::answered(DraftSequence number,
                                std::span<const std::optional<Token>> answers) {
  Sequence& sequence = sequences_.at(number);
  const std::vector<Column> window = std::exchange(sequence.window, {});
  sequence.window.resize(window.size() + 1);
  std::size_t next = window.size();  // rider of the second token of the column
  for (std::size_t i = 0; i < window.size(); ++i) {
    const std::size_t n_more = window[i].size() - 1;
    const std::optional<Token> answer = answers[n_more == 0 ? i : next + n_more - 1];
    next += n_more;
    if (!answer) continue;
    Column column = window[i];
    const bool is_complete = std::ssize(column) == sequence.height;
    if (is_complete) {
      learn(sequence, column, *answer);
      column.erase(column.begin());
    }
    column.push_back(*answer);
    Column& place = sequence.window[i + (is_complete ? 1 : 0)];
    if (place.size() < column.size()) place = std::move(column);
  }
}

void LookaheadDrafter::learn(Sequence& sequence, const Column& column, Token answer) {
  std::vector<NGram>& known = sequence.pool[column[0]];
  NGram ngram{{column.begin() + 1, column.end()}, 1};
  ngram.tokens.push_back(answer);
  const auto same = std::ranges::find(known, ngram.tokens, &NGram::tokens);
  if (same != known.end()) {
    ngram.count += same->count;
    known.erase(same);
  }
  known.insert(known.begin(), std::move(ngram));
  if (known.size() > kNGrams) known.pop_back();
}

void LookaheadDrafter::propose(std::span<const DraftRequest> requests) {
  const Stopwatch watch;
  for (const DraftRequest& request : requests) propose(request, sequences_.at(request.sequence));
  time_.add(watch.ms(), requests.size());
}

// The most frequent n-grams first, of equal ones the last said. A token's confidence is the share
// of n-grams that go on with it, one more among them that is not known.
void LookaheadDrafter::propose(const DraftRequest& request, const Sequence& sequence) {
  if (sequence.text.empty()) return;
  const auto found = sequence.pool.find(sequence.text.back());
  if (found == sequence.pool.end()) return;
  std::vector<const NGram*> ngrams;
  for (const NGram& ngram : found->second) ngrams.push_back(&ngram);
  std::ranges::stable_sort(ngrams, std::greater<>{}, &NGram::count);
  const auto n_said = [&](std::span<const Token> beginning) {
    int n = 0;
    for (const NGram* ngram : ngrams)
      if (std::ranges::mismatch(ngram->tokens, beginning).in2 == beginning.end()) n += ngram->count;
    return static_cast<float>(n);
  };
  const DraftLimits& limits = request.limits;
  int n_nodes = 0;
  std::map<int, int> n_children;  // of nodes, by this drafter
  for (const NGram* ngram : ngrams) {
    int node = 0;
    const std::span<const Token> tokens = ngram->tokens;
    for (std::size_t i = 0; i < tokens.size() && std::ssize(tokens.first(i)) < limits.depth; ++i) {
      const auto child = request.tree->child(node, tokens[i]);
      const bool is_own = child && std::ranges::count((*request.tree)[*child].proposals,
                                                      request.drafter, &Proposal::drafter) > 0;
      if (is_own) {
        node = *child;
        continue;
      }
      if (n_nodes == limits.nodes || n_children[node] == limits.width) break;
      ++n_nodes;
      ++n_children[node];
      node = request.tree->propose(
          node, tokens[i],
          {request.drafter, n_said(tokens.first(i + 1)) / (n_said(tokens.first(i)) + 1)});
    }
  }
}

void LookaheadDrafter::truncate(DraftSequence number, int length) {
  Sequence& sequence = sequences_.at(number);
  sequence.text.resize(static_cast<std::size_t>(length));
  sequence.window.clear();
}

void LookaheadDrafter::end(DraftSequence sequence) {
  CHECK(sequences_.erase(sequence) == 1);
}

const DrafterKind& lookahead_kind() {
  static const DrafterKind kind{
      .name = "lookahead",
      .value = {},
      .is_automatic = false,  // docs/speculation.md, "Every drafter": it does not pay on CPUs
      .help = "what the model said in rows of its own passes that look ahead of the text",
      .make = [](const DrafterContext&) -> std::unique_ptr<Drafter> {
        return std::make_unique<LookaheadDrafter>();
      }};
  return kind;
}

}  // namespace outrider

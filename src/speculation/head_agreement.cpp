#include "speculation/head_agreement.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "cache/cache.h"
#include "model/block_rows.h"

namespace outrider {
namespace {

constexpr int kChunk = kPagePositions / 2;  // tokens of a pass
constexpr int kDepths = 2;                  // that are compared
constexpr int kAnchorsApart = 4;            // of blocks

// The most likely tokens of rows; nothing where a row cannot be used.
std::vector<std::optional<Token>> best_tokens(Backend& backend, const Pass& pass,
                                              std::span<const Row> rows) {
  std::vector<ChoiceRequest> requests;
  for (int row = 0; row < std::ssize(rows); ++row)
    if (rows[row].wants_logits) requests.push_back({.row = row, .filters = {.temperature = 0}});
  std::vector<std::optional<Token>> tokens;
  for (const Choice& choice : backend.choose(pass, requests)) tokens.push_back(choice.token);
  return tokens;
}

class Measurement {
 public:
  Measurement(Backend& target, std::span<const Token> text)
      : target_(target), head_(*target.head()), text_(text), sequence_(head_) {}

  std::vector<bool> run(const LoadProgress& progress) {
    const LoadOptions& options = target_.options();
    // Beside tokens there are slots for what goes on from them: a level of as many, or blocks.
    const int n_tokens = head_.spec().block ? kAnchorsApart : 1;
    const int n_slots = options.n_slots / rows_to_measure(head_.spec()) * n_tokens;
    const int chunk = std::min({kChunk, options.batch_rows, n_slots});
    const int n = std::min(static_cast<int>(text_.size()), options.context);
    CHECK(chunk > 0);
    for (int first = 0; first < n; first += chunk) {
      if (progress && !progress(static_cast<double>(first) / n)) throw Error("interrupted");
      const int count = std::min(chunk, n - first);
      const Pass pass = compute_target(first, count);
      if (head_.spec().eagle)
        compute_levels(first, count, pass);
      else if (head_.spec().block)
        compute_blocks(first, count, pass);
      else
        compute_heads(first, count);
      target_.commit(sequence_.id(), pass.slots);
    }
    return compared();
  }

 private:
  // What was said to follow text_[0, length) at a depth.
  struct Guess {
    int length;
    std::optional<Token> token;
  };

  Pass compute_target(int first, int count) {
    std::vector<Row> rows;
    for (int i = 0; i < count; ++i)
      rows.push_back({.sequence = sequence_.id(),
                      .token = text_[first + i],
                      .position = first + i,
                      .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}},
                      .wants_logits = true});
    Pass pass = target_.forward(rows);
    for (const std::optional<Token>& token : best_tokens(target_, pass, rows))
      own_.push_back(token);
    return pass;
  }

  void compute_levels(int first, int count, const Pass& target) {
    const ModelSpec& spec = head_.spec();
    const int state = spec.eagle->state_is_normed ? spec.n_layers() : spec.n_layers() - 1;
    std::vector<Row> rows;
    for (int i = 0; i < count; ++i)
      rows.push_back(
          {.sequence = sequence_.id(),
           .token = text_[first + i],
           .position = first + i,
           .wants_logits = true,
           .before = i == 0 ? StateBefore{KeptFeatures{}} : StateBefore{TargetRow{i - 1}},
           .slot = target.slots[i]});
    const Pass pass = head_.forward(rows, {.taps = {state}});
    note(first, rows, pass);
    // A row at position p goes on from the head's own state at p - 1. No row stands at position 0.
    std::vector<std::vector<float>> states;
    for (int i = 0; i < count; ++i) states.push_back(head_.read_tap(pass, 0, i));
    std::vector<Row> further;
    int begin = first;
    if (last_state_.empty()) begin = std::min(2, first + count);
    for (int position = begin; position < first + count; ++position) {
      const int i = position - first;
      further.push_back({.sequence = sequence_.id(),
                         .token = text_[position],
                         .position = position,
                         .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{target.slots[i - 1]},
                         .wants_logits = true,
                         .before = std::span<const float>(i == 0 ? last_state_ : states[i - 1])});
    }
    if (!further.empty()) note(begin, further, head_.forward(further));
    last_state_ = std::move(states.back());
  }

  void compute_heads(int first, int count) {
    std::vector<Row> rows;
    std::vector<int> lengths;
    for (int head = 0; head < std::min(kDepths, head_.spec().medusa->n_heads); ++head)
      for (int i = 0; i < count; ++i) {
        lengths.push_back(first + i + 2 + head);
        rows.push_back({.sequence = sequence_.id(),
                        .token = 0,
                        .position = first + head,
                        .wants_logits = true,
                        .before = TargetRow{i}});
      }
    const auto tokens = best_tokens(head_, head_.forward(rows), rows);
    for (std::size_t i = 0; i < tokens.size(); ++i) guesses_.push_back({lengths[i], tokens[i]});
  }

  void compute_blocks(int first, int count, const Pass& target) {
    std::vector<Row> text;
    for (int i = 0; i < count; ++i)
      text.push_back({.sequence = sequence_.id(),
                      .token = text_[first + i],
                      .position = first + i,
                      .before = TargetRow{i},
                      .slot = target.slots[i]});
    head_.forward(text);
    BlockInput block = *head_.spec().block;
    const int n_rows = block.n_rows;
    for (int i = 0; i < count; ++i) {
      const int anchor = first + i;
      if (anchor == 0 || anchor % kAnchorsApart != 0) continue;
      block.n_rows = std::min(n_rows, head_.options().context - anchor);
      std::vector<Row> rows =
          block_rows(block,
                     {.sequence = sequence_.id(),
                      .anchor = text_[anchor],
                      .position = anchor,
                      .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{target.slots[i - 1]}},
                     kDepths);
      const Pass pass = head_.forward(rows);
      if (block.successor_rank > 0)
        complete(block, anchor);
      else
        note_block(anchor, best_tokens(head_, pass, rows));
    }
  }

  // With the text's own tokens; one after another where the head remembers them.
  void complete(const BlockInput& block, int anchor) {
    const int n =
        std::min({kDepths, block.n_guesses(), static_cast<int>(std::ssize(text_)) - anchor});
    std::vector<std::optional<Token>> tokens;
    std::vector<float> memory;
    ForwardOptions options;
    if (block.successors_remember) options.taps = {kMemoryTap};
    for (int begin = 0, end = 0; begin < n; begin = end) {
      end = block.successors_remember ? begin + 1 : n;
      std::vector<Row> rows;
      for (int guess = begin; guess < end; ++guess)
        rows.push_back({.sequence = sequence_.id(),
                        .token = text_[anchor + guess],
                        .position = anchor + guess,
                        .wants_logits = true,
                        .before = BlockRow{block.first_guess() + guess, memory}});
      const Pass pass = head_.forward(rows, options);
      const auto said = best_tokens(head_, pass, rows);
      tokens.insert(tokens.end(), said.begin(), said.end());
      if (block.successors_remember) memory = head_.read_tap(pass, 0, 0);
    }
    note_block(anchor, tokens);
  }

  void note_block(int anchor, std::span<const std::optional<Token>> tokens) {
    for (int guess = 0; guess < std::ssize(tokens); ++guess)
      guesses_.push_back({anchor + 1 + guess, tokens[guess]});
  }

  void note(int first, std::span<const Row> rows, const Pass& pass) {
    const auto tokens = best_tokens(head_, pass, rows);
    for (int i = 0; i < std::ssize(tokens); ++i)
      if (first + i > 0) guesses_.push_back({first + i + 1, tokens[i]});
  }

  std::vector<bool> compared() const {
    std::vector<bool> right;
    for (const auto& [length, token] : guesses_)
      if (length <= std::ssize(own_)) right.push_back(token && token == own_[length - 1]);
    return right;
  }

  Backend& target_;
  Backend& head_;
  const std::span<const Token> text_;
  const OwnedSequence sequence_;
  std::vector<std::optional<Token>> own_;  // [i]: what the target says after text_[0, i]
  std::vector<Guess> guesses_;
  std::vector<float> last_state_;  // the head's, of the last committed position
};

}  // namespace

std::vector<bool> measure_agreement(Backend& target, std::span<const Token> text,
                                    const LoadProgress& progress) {
  return Measurement(target, text).run(progress);
}

int rows_to_measure(const ModelSpec& head) {
  return head.block ? kAnchorsApart + head.block->n_rows : 2;
}

double share_of_right(const std::vector<bool>& right) {
  if (right.empty()) return 0;
  return static_cast<double>(std::ranges::count(right, true)) / static_cast<double>(right.size());
}

bool is_clearly_better(const std::vector<bool>& first, const std::vector<bool>& second) {
  CHECK(first.size() == second.size());
  double only_first = 0, only_second = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    only_first += first[i] && !second[i] ? 1 : 0;
    only_second += second[i] && !first[i] ? 1 : 0;
  }
  return only_second - only_first > 2 * std::sqrt(only_first + only_second);
}

bool is_clearly_lower(const Agreement& found, const Agreement& expected) {
  if (found.places == 0 || expected.places == 0) return false;
  const auto variance = [](const Agreement& one) {
    return one.share() * (1 - one.share()) / one.places;
  };
  return expected.share() - found.share() > 2 * std::sqrt(variance(found) + variance(expected));
}

}  // namespace outrider

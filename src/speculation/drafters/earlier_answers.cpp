#include "speculation/drafters/earlier_answers.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "base/blocked_signals.h"

namespace outrider {
namespace {

constexpr Token kEnd = -1;
constexpr std::size_t kTokensMin = 8;  // tokens; shorter ones save nothing

}  // namespace

EarlierAnswers::Index::Index(std::span<const Answer> answers, std::size_t memory_bytes)
    : text(memory_bytes) {
  for (const Answer& answer : answers) append(answer);
}

void EarlierAnswers::Index::append(const Answer& answer) {
  answers.push_back(answer);
  n_tokens += answer.size() + 1;
  text.append(answer);
  text.append({&kEnd, 1});
}

EarlierAnswers::EarlierAnswers(Options options)
    : options_(std::move(options)),
      n_tokens_max_(options_.memory_bytes / SuffixAutomaton::kBytesPerToken),
      index_({}, options_.memory_bytes) {}

void EarlierAnswers::load() {
  if (std::exchange(was_loaded_, true) || !options_.load) return;
  std::vector<Answer> answers = options_.load(n_tokens_max_ / 2);
  if (answers.empty()) return;
  const auto make = [memory = options_.memory_bytes, answers = std::move(answers)] {
    return Index(answers, memory);
  };
  const BlockedSignals blocked;
  loading_ = std::async(std::launch::async, make);
}

void EarlierAnswers::wait() {
  if (loading_.valid()) take_index();
}

const SuffixText& EarlierAnswers::text() {
  if (loading_.valid() && loading_.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    take_index();
  return index_.text;
}

// Without memory for it there are no earlier answers.
void EarlierAnswers::take_index() {
  try {
    index_ = loading_.get();
  } catch (const std::bad_alloc&) {
  }
  ++version_;
  for (const Answer& answer : std::exchange(added_, {})) append(answer);
}

void EarlierAnswers::add(std::span<const Token> answer) noexcept {
  if (answer.size() < kTokensMin) return;
  try {
    Answer added(answer.begin(), answer.end());
    if (options_.keep) options_.keep(added);
    if (loading_.valid())
      added_.push_back(std::move(added));
    else
      append(added);
  } catch (const std::exception&) {
  }
}

// Where there is no room, the newer half stays.
void EarlierAnswers::append(const Answer& answer) {
  if (answer.size() >= n_tokens_max_ / 2) return;
  if (std::ranges::find(index_.answers, answer) != index_.answers.end()) return;
  if (index_.n_tokens + answer.size() >= n_tokens_max_) {
    std::size_t n_dropped = 0;
    for (std::size_t n = index_.n_tokens; n > n_tokens_max_ / 2; ++n_dropped)
      n -= index_.answers[n_dropped].size() + 1;
    index_ = Index(std::span(index_.answers).subspan(n_dropped), options_.memory_bytes);
  }
  index_.append(answer);
  ++version_;
}

void EarlierAnswers::forget() {
  wait();
  index_ = Index({}, options_.memory_bytes);
  ++version_;
}

}  // namespace outrider

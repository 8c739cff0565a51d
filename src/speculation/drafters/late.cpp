#include "speculation/drafters/late.h"

#include <chrono>
#include <exception>
#include <utility>

#include "base/blocked_signals.h"
#include "base/error.h"

namespace outrider {

LateDrafter::LateDrafter(std::string name, const Make& make)
    : name_(std::move(name)), made_([&] {
        const BlockedSignals blocked;
        return std::async(std::launch::async, [this, make] { return make(is_stopped_); });
      }()) {}

LateDrafter::~LateDrafter() {
  is_stopped_ = true;
  if (made_.valid()) made_.wait();
}

// What there was to tell it meanwhile, it is told now. Where that fails, texts go on without it.
void LateDrafter::take() {
  if (!made_.valid() || made_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
    return;
  const Finish finish = made_.get();
  try {
    std::unique_ptr<Drafter> drafter = finish();
    if (!drafter) return;
    if (known_costs_.empty())
      drafter->measure_costs();
    else
      drafter->restore_costs(known_costs_);
    for (const auto& [sequence, text] : texts_) {
      const std::span<const Token> tokens = text.tokens;
      drafter->begin(sequence, text.scope);
      drafter->observe(sequence, tokens.first(text.answer));
      drafter->expect(sequence, text.prediction);
      drafter->observe(sequence, tokens.subspan(text.answer));
    }
    drafter_ = std::move(drafter);
    texts_.clear();
  } catch (const std::exception&) {
  }
}

void LateDrafter::begin(DraftSequence sequence, CacheScope scope) {
  if (drafter_) return drafter_->begin(sequence, scope);
  CHECK(texts_.try_emplace(sequence, Text{.scope = scope}).second);
}

void LateDrafter::observe(DraftSequence sequence, std::span<const Token> tokens) {
  if (drafter_) return drafter_->observe(sequence, tokens);
  std::vector<Token>& text = texts_.at(sequence).tokens;
  text.insert(text.end(), tokens.begin(), tokens.end());
}

void LateDrafter::expect(DraftSequence sequence, std::span<const Token> prediction) {
  if (drafter_) return drafter_->expect(sequence, prediction);
  Text& text = texts_.at(sequence);
  text.prediction.assign(prediction.begin(), prediction.end());
  text.answer = text.tokens.size();
}

void LateDrafter::propose(std::span<const DraftRequest> requests) {
  if (drafter_) return drafter_->propose(requests);
  take();
}

void LateDrafter::suspend(DraftSequence sequence) {
  if (drafter_) drafter_->suspend(sequence);
}

void LateDrafter::truncate(DraftSequence sequence, int length) {
  if (drafter_) return drafter_->truncate(sequence, length);
  Text& text = texts_.at(sequence);
  text.tokens.resize(length);
  text.answer = std::min(text.answer, text.tokens.size());
}

void LateDrafter::end(DraftSequence sequence) {
  if (drafter_) return drafter_->end(sequence);
  CHECK(texts_.erase(sequence) == 1);
}

int LateDrafter::n_to_prefill(DraftSequence sequence, int n_context) const {
  return drafter_ ? drafter_->n_to_prefill(sequence, n_context)
                  : Drafter::n_to_prefill(sequence, n_context);
}

int LateDrafter::n_known(DraftSequence sequence, int n_context) const {
  return drafter_ ? drafter_->n_known(sequence, n_context) : Drafter::n_known(sequence, n_context);
}

void LateDrafter::forget() {
  if (drafter_) drafter_->forget();
}

void LateDrafter::measure_costs() {
  if (drafter_) drafter_->measure_costs();
}

std::vector<CostCurve::Point> LateDrafter::costs() const {
  return drafter_ ? drafter_->costs() : known_costs_;
}

void LateDrafter::restore_costs(std::span<const CostCurve::Point> costs) {
  known_costs_.assign(costs.begin(), costs.end());
  if (drafter_ && !costs.empty()) drafter_->restore_costs(costs);
}

DraftCost LateDrafter::cost(int n_sequences, int length) const {
  return drafter_ ? drafter_->cost(n_sequences, length) : DraftCost{};
}

}  // namespace outrider

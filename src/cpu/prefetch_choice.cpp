#include "cpu/prefetch_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"

namespace outrider {
namespace {

// Passes with more rows are not compared.
constexpr std::size_t kFewRows = 2;

const double kLeastGain = std::log(1.03);
// Memory that changes its rate between two passes says nothing about them: a comparison counts as
// this much at most.
constexpr double kMostLog = 0.5;
constexpr int kLeastCompared = 8;
// So that a machine that changes is noticed.
constexpr int kRemembered = 32;
constexpr double kStandardErrors = 3.5;
// A few comparisons can agree by chance: these many are assumed before the first.
constexpr int kAssumed = 4;

}  // namespace

std::string_view name(PrefetchPattern prefetch) {
  switch (prefetch) {
    case PrefetchPattern::processor: return "processor";
    case PrefetchPattern::near: return "near";
    case PrefetchPattern::far: return "far";
  }
  return "";
}

std::optional<PrefetchPattern> forced_prefetch() {
  const char* forced = std::getenv("OUTRIDER_PREFETCH");
  if (forced == nullptr || *forced == '\0') return std::nullopt;
  for (const PrefetchPattern prefetch : kPrefetchPatterns)
    if (name(prefetch) == forced) return prefetch;
  throw Error("OUTRIDER_PREFETCH={}: processor, near or far", forced);
}

PrefetchChoice::PrefetchChoice(PrefetchPattern first) : chosen_(first), trial_(first) {}

void PrefetchChoice::compare(PrefetchPattern other, double other_ms, double chosen_ms) {
  CHECK(other != chosen_);
  const double log = std::clamp(std::log(other_ms / chosen_ms), -kMostLog, kMostLog);
  Compared& so_far = compared_[index(other)];
  so_far.n = std::min(so_far.n + 1, kRemembered);
  const double before = log - so_far.mean;
  so_far.mean += before / so_far.n;
  so_far.variance += (before * (log - so_far.mean) - so_far.variance) / (so_far.n + kAssumed);
  if (so_far.n < kLeastCompared) return;
  const double noise = std::sqrt(so_far.variance / (so_far.n - 1));
  if (-so_far.mean <= kLeastGain + kStandardErrors * noise) return;
  chosen_ = other;
  compared_ = {};
}

PrefetchPattern PrefetchChoice::after(PrefetchPattern pattern) const {
  do {
    pattern = kPrefetchPatterns[(index(pattern) + 1) % kPrefetchPatterns.size()];
  } while (pattern == chosen_);
  return pattern;
}

PrefetchPattern PrefetchChoice::next(const Shape& shape) {
  shape_ = shape;
  is_trial_ = shape.rows <= kFewRows && since_trial_ >= kBetween && last_ && last_->shape == shape;
  if (is_trial_) trial_ = after(trial_);
  return is_trial_ ? trial_ : chosen_;
}

void PrefetchChoice::took(double ms) {
  if (is_trial_) {
    since_trial_ = 0;
    compare(trial_, ms, last_->ms);
    last_.reset();
  } else {
    since_trial_ += shape_.rows <= kFewRows;
    last_ = {shape_, ms};
  }
}

}  // namespace outrider

#include "cpu/reading_choice.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"

namespace outrider {
namespace {

// With more rows there is only one way.
constexpr std::size_t kFewRows = 2;

const double kLeastGain = std::log(1.03);
// Memory that changes its rate between two passes says nothing about them: a comparison counts as
// this much at most.
constexpr double kMostLog = 0.5;
constexpr int kLeastCompared = 8;
// So that a machine that changes is noticed.
constexpr int kRemembered = 32;
constexpr double kStandardErrors = 3.5;
// A few comparisons can agree by chance: these many are assumed before the first, whose variance is
// that of passes with 20 % of noise each.
constexpr int kAssumed = 4;
constexpr double kAssumedVariance = 2 * 0.2 * 0.2;

}  // namespace

std::string_view name(Reading reading) {
  return reading == Reading::processor ? "processor" : "requests";
}

std::optional<Reading> forced_reading() {
  const char* forced = std::getenv("OUTRIDER_READING");
  if (forced == nullptr || *forced == '\0') return std::nullopt;
  for (const Reading reading : {Reading::processor, Reading::requests})
    if (name(reading) == forced) return reading;
  throw Error("OUTRIDER_READING={}: processor or requests", forced);
}

ReadingChoice::ReadingChoice(Reading first) : chosen_(first), variance_(kAssumedVariance) {}

void ReadingChoice::compare(double processor_ms, double requests_ms) {
  const double log = std::clamp(std::log(requests_ms / processor_ms), -kMostLog, kMostLog);
  n_ = std::min(n_ + 1, kRemembered);
  const double before = log - mean_;
  mean_ += before / n_;
  variance_ += (before * (log - mean_) - variance_) / (n_ + kAssumed);
  if (n_ < kLeastCompared) return;
  const double gain = chosen_ == Reading::processor ? -mean_ : mean_;  // of the other way
  if (gain > kLeastGain + kStandardErrors * std::sqrt(variance_ / (n_ - 1)))
    chosen_ = other(chosen_);
}

Reading ReadingChoice::next(const Shape& shape) {
  shape_ = shape;
  is_trial_ = shape.rows <= kFewRows && since_trial_ >= kBetween && last_ && last_->shape == shape;
  return is_trial_ ? other(chosen_) : chosen_;
}

void ReadingChoice::took(double ms) {
  if (is_trial_) {
    since_trial_ = 0;
    const double last_ms = last_->ms;
    last_.reset();
    if (chosen_ == Reading::processor)
      compare(last_ms, ms);
    else
      compare(ms, last_ms);
  } else {
    since_trial_ += shape_.rows <= kFewRows;
    last_ = {shape_, ms};
  }
}

}  // namespace outrider

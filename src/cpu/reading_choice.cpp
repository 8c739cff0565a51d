#include "cpu/reading_choice.h"

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

std::string_view name(Reading reading) {
  switch (reading) {
    case Reading::processor: return "processor";
    case Reading::near: return "near";
    case Reading::far: return "far";
  }
  return "";
}

std::optional<Reading> forced_reading() {
  const char* forced = std::getenv("OUTRIDER_READING");
  if (forced == nullptr || *forced == '\0') return std::nullopt;
  for (const Reading reading : kReadings)
    if (name(reading) == forced) return reading;
  throw Error("OUTRIDER_READING={}: processor, near or far", forced);
}

ReadingChoice::ReadingChoice(Reading first) : chosen_(first), trial_(first) {}

void ReadingChoice::compare(Reading other, double other_ms, double chosen_ms) {
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

Reading ReadingChoice::after(Reading way) const {
  do {
    way = kReadings[(index(way) + 1) % kReadings.size()];
  } while (way == chosen_);
  return way;
}

Reading ReadingChoice::next(const Shape& shape) {
  shape_ = shape;
  is_trial_ = shape.rows <= kFewRows && since_trial_ >= kBetween && last_ && last_->shape == shape;
  if (is_trial_) trial_ = after(trial_);
  return is_trial_ ? trial_ : chosen_;
}

void ReadingChoice::took(double ms) {
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

#include "training/repetition.h"

#include <algorithm>

namespace outrider {
namespace {

constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15;  // odd; from the golden ratio

constexpr std::uint64_t power(std::uint64_t base, std::size_t exponent) {
  std::uint64_t product = 1;
  for (std::size_t i = 0; i < exponent; ++i) product *= base;
  return product;
}

constexpr std::uint64_t kOldest = power(kFactor, Repetition::kRun);

std::uint64_t digit(Token token) {
  return static_cast<std::uint32_t>(token) + std::uint64_t{1};
}

}  // namespace

bool Repetition::push(Token token) {
  if (kept_) return true;
  // A polynomial modulo 2^64 rolls over the text: the oldest token leaves with its power.
  text_.push_back(token);
  hash_ = hash_ * kFactor + digit(token);
  if (text_.size() > kRun) {
    hash_ -= digit(text_[text_.size() - 1 - kRun]) * kOldest;
  }
  if (text_.size() < kRun) return false;

  const std::size_t begin = text_.size() - kRun;
  const auto [first, last] = runs_.equal_range(hash_);
  for (auto at = first; at != last; ++at) {
    Run& run = at->second;
    if (!std::equal(text_.end() - kRun, text_.end(), text_.begin() + run.begin)) continue;
    if (++run.n_occurrences == kOccurrences) kept_ = begin;
    return kept_.has_value();
  }
  runs_.emplace(hash_, Run{begin, 1});
  return false;
}

}  // namespace outrider

// Prefetch patterns: how kernels ask for the weights of passes with one or two rows, which wait for
// memory alone. Which one is faster depends on the machine: with far requests T(1) takes 0.7 of the
// time on a Zen 5, 1.08 to 1.29 on a Zen 4; with near ones 0.87 on a Xeon with AMX, where far ones
// gain nothing (docs/experiments/, products-avx512.md and products-amx.md). So it is measured where
// it runs. Bits do not depend on it.

#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace outrider {

enum class PrefetchPattern {
  processor,  // left to the processor's own prefetching, which detects streams
  near,       // requested ahead by the kernels, mostly within the same page of 4 KiB
  far,        // requested further ahead
};
inline constexpr std::array kPrefetchPatterns{PrefetchPattern::processor, PrefetchPattern::near,
                                              PrefetchPattern::far};
// Its place in arrays with an entry per pattern.
constexpr std::size_t index(PrefetchPattern prefetch) {
  return static_cast<std::size_t>(prefetch);
}

std::string_view name(PrefetchPattern prefetch);
// The one that the environment variable OUTRIDER_PREFETCH names, if it is set. Throws Error if it
// names none.
std::optional<PrefetchPattern> forced_prefetch();

// Chooses a pattern by the times of passes: another one takes the place of the chosen one if it is
// faster by 3 % and by more than chance explains.
class PrefetchChoice {
 public:
  // Passes of the same shape do the same work.
  struct Shape {
    std::size_t rows = 0, layers = 0, logits = 0;
    bool operator==(const Shape&) const = default;
  };

  explicit PrefetchChoice(PrefetchPattern first);

  PrefetchPattern chosen() const { return chosen_; }
  // Takes the times of two passes of one shape, soon after each other: one with another pattern,
  // one with the chosen one.
  void compare(PrefetchPattern other, double other_ms, double chosen_ms);

  // Passes in normal work compare patterns, too: next(), before each pass, says which one it uses,
  // and took(), after it, gets its time. Of kBetween passes with one or two rows at most one uses
  // another pattern, right after a pass of the same shape: if that takes 1.5 times as long, it
  // costs 0.8 %. The other patterns take turns.
  static constexpr int kBetween = 64;
  PrefetchPattern next(const Shape& shape);
  void took(double ms);

 private:
  // log(time with this pattern / time with the chosen one): mean and variance over about the last
  // kRemembered comparisons; n: their number. The first variance is that of passes with 20 % of
  // noise each.
  struct Compared {
    int n = 0;
    double mean = 0, variance = 2 * 0.2 * 0.2;
  };
  PrefetchPattern after(PrefetchPattern pattern) const;

  PrefetchPattern chosen_;
  std::array<Compared, kPrefetchPatterns.size()> compared_;  // by pattern, since the choice
  struct Timed {
    Shape shape;
    double ms;
  };
  std::optional<Timed> last_;  // the last pass, if it can be compared with
  Shape shape_;                // of the pass that runs
  bool is_trial_ = false;      // it uses trial_
  PrefetchPattern trial_;      // the pattern that was tried last
  int since_trial_ = 0;        // passes with few rows
};

}  // namespace outrider

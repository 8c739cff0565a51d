// How kernels get the weights of passes with one or two rows, which wait for memory alone. Which
// way is faster depends on the machine: with requests T(1) takes 0.7 of the time on a Zen 5, 1.08
// to 1.29 on a Zen 4 (docs/experiments.md). So it is measured where it runs. Bits do not depend on
// it.

#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace outrider {

enum class Reading {
  processor,  // left to the processor's own prefetching, which detects streams
  requests,   // requested ahead by the kernels, as with more rows
};

std::string_view name(Reading reading);
constexpr Reading other(Reading reading) {
  return reading == Reading::processor ? Reading::requests : Reading::processor;
}
// The one that the environment variable OUTRIDER_READING names, if it is set. Throws Error if it
// names none.
std::optional<Reading> forced_reading();

// Decides by the times of passes. One way is given up for the other if that is faster by 3 % and by
// more than chance explains.
class ReadingChoice {
 public:
  // Passes of the same shape do the same work.
  struct Shape {
    std::size_t rows = 0, layers = 0, logits = 0;
    bool operator==(const Shape&) const = default;
  };

  explicit ReadingChoice(Reading first);

  Reading chosen() const { return chosen_; }
  // Two passes of one shape, one right after the other, took so long.
  void compare(double processor_ms, double requests_ms);

  // Plain passes compare on their own: next() before each pass says how it shall read, took() after
  // it how long it was. Of kBetween passes with few rows at most one reads in the way that is not
  // chosen, right after one of its shape: if that way takes 1.5 times as long, it costs 0.8 %.
  static constexpr int kBetween = 64;
  Reading next(const Shape& shape);
  void took(double ms);

 private:
  Reading chosen_;

  // log(time with requests / time without): mean and variance over about the last kRemembered
  // comparisons, whose number is n_.
  int n_ = 0;
  double mean_ = 0, variance_;

  struct Timed {
    Shape shape;
    double ms;
  };
  std::optional<Timed> last_;  // the last pass, if it can be compared with
  Shape shape_;                // of the pass that runs
  bool is_trial_ = false;      // it reads in the other way
  int since_trial_ = 0;        // passes with few rows
};

}  // namespace outrider

// The choice on machines that are simulated: it sees times with noise, never a clock.

#include "cpu/reading_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>

#include "base/error.h"

namespace outrider {
namespace {

constexpr double kNoises[] = {0, 0.1, 0.2};
constexpr unsigned kSeeds = 40;

// Passes take 20 ms, with requests `ratio` times as long, and noise on each.
class Machine {
 public:
  Machine(double ratio, double noise, unsigned seed) : ratio_(ratio), noise_(noise), rng_(seed) {}

  void set_ratio(double ratio) { ratio_ = ratio; }
  double without_noise(Reading reading) const {
    return reading == Reading::requests ? 20 * ratio_ : 20;
  }
  double time(Reading reading) { return without_noise(reading) * std::exp(noise_ * normal_(rng_)); }

  void compare(ReadingChoice& choice) {
    const double processor_ms = time(Reading::processor);
    choice.compare(processor_ms, time(Reading::requests));
  }

 private:
  double ratio_, noise_;
  std::mt19937 rng_;
  std::normal_distribution<double> normal_;
};

// How many comparisons it takes until the choice is `wanted`, at most `most`.
int comparisons_until(Reading wanted, ReadingChoice& choice, Machine& machine, int most) {
  int n = 0;
  for (; n < most && choice.chosen() != wanted; ++n) machine.compare(choice);
  return n;
}

TEST(ReadingChoice, BelowThreePercentTheFirstWayStays) {
  for (const double noise : kNoises) {
    for (const double ratio : {0.975, 1.0, 1.3}) {
      int switched = 0;
      for (unsigned seed = 0; seed < kSeeds; ++seed) {
        Machine machine(ratio, noise, seed);
        ReadingChoice choice(Reading::processor);
        switched += comparisons_until(Reading::requests, choice, machine, 500) < 500;
      }
      EXPECT_LE(switched, 1) << "noise " << noise << " ratio " << ratio;
    }
  }
}

TEST(ReadingChoice, ThirtyPercentAreFound) {
  for (const double noise : kNoises) {
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      Machine machine(1 / 1.3, noise, seed);
      ReadingChoice choice(Reading::processor);
      const int n = comparisons_until(Reading::requests, choice, machine, 1000);
      EXPECT_LE(n, noise <= 0.1 ? 20 : 100) << "noise " << noise << " seed " << seed;
    }
  }
}

TEST(ReadingChoice, AMachineThatChangesIsFollowed) {
  for (const double noise : kNoises) {
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      Machine machine(1 / 1.3, noise, seed);
      ReadingChoice choice(Reading::processor);
      for (int i = 0; i < 200; ++i) machine.compare(choice);
      EXPECT_EQ(choice.chosen(), Reading::requests);
      machine.set_ratio(1.3);
      EXPECT_LE(comparisons_until(Reading::processor, choice, machine, 1000), 200)
          << "noise " << noise << " seed " << seed;
    }
  }
}

// Memory that is twice as slow for one of two passes, now and then.
TEST(ReadingChoice, JumpsOfMemoryAreNoEvidence) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    Machine machine(1, 0.02, seed);
    ReadingChoice choice(Reading::processor);
    std::mt19937 rng(seed);
    for (int i = 0; i < 500; ++i) {
      const double processor_ms = machine.time(Reading::processor) * (rng() % 4 == 0 ? 2 : 1);
      choice.compare(processor_ms, machine.time(Reading::requests) * (rng() % 4 == 0 ? 2 : 1));
      ASSERT_EQ(choice.chosen(), Reading::processor) << "seed " << seed;
    }
  }
}

// One row, all layers, one row of logits.
constexpr ReadingChoice::Shape kPlain = {.rows = 1, .layers = 28, .logits = 1};

TEST(ReadingChoice, PlainPassesFindTheFasterWay) {
  for (const double noise : kNoises) {
    Machine machine(1 / 1.3, noise, 1);
    ReadingChoice choice(Reading::processor);
    int passes = 0;
    for (; passes < 5000 && choice.chosen() != Reading::requests; ++passes)
      choice.took(machine.time(choice.next(kPlain)));
    EXPECT_LE(passes, (noise <= 0.1 ? 20 : 100) * (ReadingChoice::kBetween + 2));
  }
}

TEST(ReadingChoice, ComparingCostsLessThanOnePercent) {
  for (const double noise : kNoises) {
    for (const double ratio : {1.0, 1.3, 1.5}) {
      Machine machine(ratio, noise, 1);
      ReadingChoice choice(Reading::processor);
      double total = 0;
      constexpr int kPasses = 20000;
      for (int i = 0; i < kPasses; ++i) {
        const Reading reading = choice.next(kPlain);
        total += machine.without_noise(reading);
        choice.took(machine.time(reading));
      }
      EXPECT_LE(total / (20.0 * kPasses), 1.01) << "noise " << noise << " ratio " << ratio;
    }
  }
}

TEST(ReadingChoice, OnlyNeighboursOfOneShapeAreCompared) {
  ReadingChoice choice(Reading::processor);
  const auto shape_of = [](std::size_t i) -> ReadingChoice::Shape {
    switch (i % 4) {
      case 0: return {.rows = 2, .layers = 28, .logits = 2};
      case 1: return {.rows = 1, .layers = 28, .logits = 1};
      case 2: return {.rows = 1, .layers = 10, .logits = 1};
      default: return {.rows = 1, .layers = 28, .logits = 0};
    }
  };
  for (std::size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(choice.next(shape_of(i)), Reading::processor);
    choice.took(20);
  }
  for (std::size_t i = 0; i < 1000; ++i) {  // too many rows
    EXPECT_EQ(choice.next({.rows = 3, .layers = 28, .logits = 3}), Reading::processor);
    choice.took(20);
  }
  int trials = 0;
  for (int i = 0; i < 2 * ReadingChoice::kBetween; ++i) {
    trials += choice.next(kPlain) == Reading::requests;
    choice.took(20);
  }
  EXPECT_EQ(trials, 2);
}

// Sets OUTRIDER_READING, or unsets it, for as long as it lives.
class Forced {
 public:
  explicit Forced(const char* value) {
    if (const char* before = std::getenv("OUTRIDER_READING")) before_ = before;
    set(value);
  }
  ~Forced() { set(before_ ? before_->c_str() : nullptr); }

 private:
  static void set(const char* value) {
    value ? setenv("OUTRIDER_READING", value, 1) : unsetenv("OUTRIDER_READING");
  }
  std::optional<std::string> before_;
};

TEST(ForcedReading, IsWhatTheEnvironmentNames) {
  for (const char* nothing : {static_cast<const char*>(nullptr), ""}) {
    const Forced forced(nothing);
    EXPECT_EQ(forced_reading(), std::nullopt);
  }
  for (const Reading reading : {Reading::processor, Reading::requests}) {
    const Forced forced(std::string(name(reading)).c_str());
    EXPECT_EQ(forced_reading(), reading);
  }
  for (const char* unknown : {"prefetch", "Requests", "requests "}) {
    const Forced forced(unknown);
    EXPECT_THROW(forced_reading(), Error) << unknown;
  }
}

}  // namespace
}  // namespace outrider

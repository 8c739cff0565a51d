// The choice on machines that are simulated: it sees times with noise, never a clock.

#include "cpu/prefetch_choice.h"

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

// Passes take 20 ms, with near and far requests these times as long, and noise on each.
struct Ratios {
  double near, far;
};
class Machine {
 public:
  Machine(Ratios ratios, double noise, unsigned seed)
      : ratios_(ratios), noise_(noise), rng_(seed) {}

  void set_ratios(Ratios ratios) { ratios_ = ratios; }
  double without_noise(PrefetchPattern prefetch) const {
    switch (prefetch) {
      case PrefetchPattern::processor: return 20;
      case PrefetchPattern::near: return 20 * ratios_.near;
      case PrefetchPattern::far: return 20 * ratios_.far;
    }
    return 0;
  }
  double time(PrefetchPattern prefetch) {
    return without_noise(prefetch) * std::exp(noise_ * normal_(rng_));
  }

  // Each way once.
  void compare(PrefetchChoice& choice) {
    for (const PrefetchPattern prefetch : kPrefetchPatterns) {
      if (prefetch == choice.chosen()) continue;
      const double chosen_ms = time(choice.chosen());
      choice.compare(prefetch, time(prefetch), chosen_ms);
    }
  }

 private:
  Ratios ratios_;
  double noise_;
  std::mt19937 rng_;
  std::normal_distribution<double> normal_;
};

// How many times all ways are compared until the choice is `wanted`, at most `most`.
int comparisons_until(PrefetchPattern wanted, PrefetchChoice& choice, Machine& machine, int most) {
  int n = 0;
  for (; n < most && choice.chosen() != wanted; ++n) machine.compare(choice);
  return n;
}

TEST(PrefetchChoice, BelowThreePercentTheFirstWayStays) {
  for (const double noise : kNoises) {
    for (const Ratios ratios : {Ratios{0.975, 0.975}, Ratios{1, 1}, Ratios{1.3, 0.985}}) {
      int switched = 0;
      for (unsigned seed = 0; seed < kSeeds; ++seed) {
        Machine machine(ratios, noise, seed);
        PrefetchChoice choice(PrefetchPattern::processor);
        for (int i = 0; i < 500 && choice.chosen() == PrefetchPattern::processor; ++i)
          machine.compare(choice);
        switched += choice.chosen() != PrefetchPattern::processor;
      }
      EXPECT_LE(switched, 1) << "noise " << noise << " ratios " << ratios.near << ' ' << ratios.far;
    }
  }
}

TEST(PrefetchChoice, ThirtyPercentAreFound) {
  for (const double noise : kNoises) {
    for (const double of_other : {1.0, 1.3}) {
      for (unsigned seed = 0; seed < kSeeds; ++seed) {
        Machine near(Ratios{1 / 1.3, of_other}, noise, seed);
        PrefetchChoice of_near(PrefetchPattern::processor);
        EXPECT_LE(comparisons_until(PrefetchPattern::near, of_near, near, 1000),
                  noise <= 0.1 ? 20 : 100)
            << "noise " << noise << " seed " << seed;
        Machine far(Ratios{of_other, 1 / 1.3}, noise, seed);
        PrefetchChoice of_far(PrefetchPattern::processor);
        EXPECT_LE(comparisons_until(PrefetchPattern::far, of_far, far, 1000),
                  noise <= 0.1 ? 20 : 100)
            << "noise " << noise << " seed " << seed;
      }
    }
  }
}

// About thirty are compared while a model is loaded the first time.
TEST(PrefetchChoice, OneDelayedPassDoesNotHideSeventeenPercent) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    Machine machine(Ratios{1 / 1.17, 1}, 0.04, seed);
    PrefetchChoice choice(PrefetchPattern::processor);
    for (int i = 0; i < 6; ++i) machine.compare(choice);
    choice.compare(PrefetchPattern::near, 29, 20);
    EXPECT_LE(comparisons_until(PrefetchPattern::near, choice, machine, 1000), 24) << seed;
  }
}

TEST(PrefetchChoice, TheFastestOfThreeIsFound) {
  for (const double noise : {0.0, 0.1}) {
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      Machine machine(Ratios{0.75, 0.87}, noise, seed);
      PrefetchChoice choice(PrefetchPattern::processor);
      for (int i = 0; i < 200; ++i) machine.compare(choice);
      EXPECT_EQ(choice.chosen(), PrefetchPattern::near) << "noise " << noise << " seed " << seed;
    }
  }
}

TEST(PrefetchChoice, WhatIsFasterStays) {
  for (const double noise : kNoises) {
    int left = 0;
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      Machine machine(Ratios{1 / 1.3, 1}, noise, seed);
      PrefetchChoice choice(PrefetchPattern::processor);
      comparisons_until(PrefetchPattern::near, choice, machine, 1000);
      for (int i = 0; i < 500 && choice.chosen() == PrefetchPattern::near; ++i)
        machine.compare(choice);
      left += choice.chosen() != PrefetchPattern::near;
    }
    EXPECT_LE(left, 1) << "noise " << noise;
  }
}

TEST(PrefetchChoice, AMachineThatChangesIsFollowed) {
  for (const double noise : kNoises) {
    for (unsigned seed = 0; seed < kSeeds; ++seed) {
      Machine machine(Ratios{1, 1 / 1.3}, noise, seed);
      PrefetchChoice choice(PrefetchPattern::processor);
      for (int i = 0; i < 200; ++i) machine.compare(choice);
      EXPECT_EQ(choice.chosen(), PrefetchPattern::far);
      machine.set_ratios({1.3, 1.3});
      EXPECT_LE(comparisons_until(PrefetchPattern::processor, choice, machine, 1000), 200)
          << "noise " << noise << " seed " << seed;
    }
  }
}

// Memory that is twice as slow for one of two passes, now and then.
TEST(PrefetchChoice, JumpsOfMemoryAreNoEvidence) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    Machine machine(Ratios{1, 1}, 0.02, seed);
    PrefetchChoice choice(PrefetchPattern::processor);
    std::mt19937 rng(seed);
    for (int i = 0; i < 500; ++i) {
      const double chosen_ms = machine.time(PrefetchPattern::processor) * (rng() % 4 == 0 ? 2 : 1);
      const PrefetchPattern other = i % 2 == 0 ? PrefetchPattern::near : PrefetchPattern::far;
      choice.compare(other, machine.time(other) * (rng() % 4 == 0 ? 2 : 1), chosen_ms);
      ASSERT_EQ(choice.chosen(), PrefetchPattern::processor) << "seed " << seed;
    }
  }
}

// One row, all layers, one row of logits.
constexpr PrefetchChoice::Shape kPlain = {.rows = 1, .layers = 28, .logits = 1};

TEST(PrefetchChoice, PlainPassesFindTheFasterWay) {
  for (const double noise : kNoises) {
    Machine machine(Ratios{1, 1 / 1.3}, noise, 1);
    PrefetchChoice choice(PrefetchPattern::processor);
    int passes = 0;
    for (; passes < 15000 && choice.chosen() != PrefetchPattern::far; ++passes)
      choice.took(machine.time(choice.next(kPlain)));
    EXPECT_LE(passes, 2 * (noise <= 0.1 ? 20 : 100) * (PrefetchChoice::kBetween + 2));
  }
}

TEST(PrefetchChoice, ComparingCostsLessThanOnePercent) {
  for (const double noise : kNoises) {
    for (const double ratio : {1.0, 1.3, 1.5}) {
      Machine machine(Ratios{ratio, ratio}, noise, 1);
      PrefetchChoice choice(PrefetchPattern::processor);
      double total = 0;
      constexpr int kPasses = 20000;
      for (int i = 0; i < kPasses; ++i) {
        const PrefetchPattern prefetch = choice.next(kPlain);
        total += machine.without_noise(prefetch);
        choice.took(machine.time(prefetch));
      }
      EXPECT_LE(total / (20.0 * kPasses), 1.01) << "noise " << noise << " ratio " << ratio;
    }
  }
}

TEST(PrefetchChoice, OnlyNeighboursOfOneShapeAreCompared) {
  PrefetchChoice choice(PrefetchPattern::processor);
  const auto shape_of = [](std::size_t i) -> PrefetchChoice::Shape {
    switch (i % 4) {
      case 0: return {.rows = 2, .layers = 28, .logits = 2};
      case 1: return {.rows = 1, .layers = 28, .logits = 1};
      case 2: return {.rows = 1, .layers = 10, .logits = 1};
      default: return {.rows = 1, .layers = 28, .logits = 0};
    }
  };
  for (std::size_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(choice.next(shape_of(i)), PrefetchPattern::processor);
    choice.took(20);
  }
  for (std::size_t i = 0; i < 1000; ++i) {  // too many rows
    EXPECT_EQ(choice.next({.rows = 3, .layers = 28, .logits = 3}), PrefetchPattern::processor);
    choice.took(20);
  }
  int near = 0, far = 0;
  for (int i = 0; i < 2 * PrefetchChoice::kBetween; ++i) {
    const PrefetchPattern prefetch = choice.next(kPlain);
    near += prefetch == PrefetchPattern::near;
    far += prefetch == PrefetchPattern::far;
    choice.took(20);
  }
  EXPECT_EQ(near, 1);
  EXPECT_EQ(far, 1);
}

// Sets OUTRIDER_PREFETCH, or unsets it, for as long as it lives.
class Forced {
 public:
  explicit Forced(const char* value) {
    if (const char* before = std::getenv("OUTRIDER_PREFETCH")) before_ = before;
    set(value);
  }
  ~Forced() { set(before_ ? before_->c_str() : nullptr); }

 private:
  static void set(const char* value) {
    value ? setenv("OUTRIDER_PREFETCH", value, 1) : unsetenv("OUTRIDER_PREFETCH");
  }
  std::optional<std::string> before_;
};

TEST(ForcedReading, IsWhatTheEnvironmentNames) {
  for (const char* nothing : {static_cast<const char*>(nullptr), ""}) {
    const Forced forced(nothing);
    EXPECT_EQ(forced_prefetch(), std::nullopt);
  }
  for (const PrefetchPattern prefetch : kPrefetchPatterns) {
    const Forced forced(std::string(name(prefetch)).c_str());
    EXPECT_EQ(forced_prefetch(), prefetch);
  }
  for (const char* unknown : {"prefetch", "Near", "far "}) {
    const Forced forced(unknown);
    EXPECT_THROW(forced_prefetch(), Error) << unknown;
  }
}

}  // namespace
}  // namespace outrider

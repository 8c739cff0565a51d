#include "speculation/guard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace outrider {
namespace {

using Bound = Guard::Bound;

// The most passes of a sequence's own drafts that the guard allows.
double allowed(const Guard& guard, Guard::Account account, int n_sequences = 1) {
  double low = 0, high = 1000;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    const Guard::Share share{&account, middle};
    (guard.exceeded({&share, 1}, n_sequences) == Bound::none ? low : high) = middle;
  }
  return low;
}

// Counts a step of one sequence.
void count(Guard& guard, Guard::Account& account, double passes, int n_tokens) {
  const Guard::Share share{&account, passes, n_tokens};
  guard.count({&share, 1}, 1);
}

TEST(Guard, AnAnswerMayLoseALittleAtFirstAndAShareOfItsTokens) {
  const Guard guard;
  EXPECT_NEAR(allowed(guard, {}), 3, 1e-9);
  EXPECT_NEAR(allowed(guard, {.n_tokens = 100}), 3 + 5, 1e-9);
  EXPECT_NEAR(allowed(guard, {.n_tokens = 100, .loss = 2}), 6, 1e-9);
  EXPECT_NEAR(allowed(guard, {.n_tokens = 100, .loss = -4}), 12, 1e-9);  // what it has saved
  EXPECT_NEAR(allowed(guard, {}, 4), 0.75, 1e-9);  // all four wait for its drafts
}

TEST(Guard, AndWhatItsPromptTakesOfWhichAShortAnswerGetsLess) {
  const Guard guard;
  EXPECT_NEAR(allowed(guard, {.prefill = 1}), 3 + 1, 1e-9);
  EXPECT_NEAR(allowed(guard, {.prefill = 100, .n_tokens = 15}), 3 + 0.75 + 2, 1e-9);
  EXPECT_NEAR(allowed(guard, {.prefill = 100, .n_tokens = 16}), 3 + 0.8 + 8, 1e-9);
  EXPECT_NEAR(allowed(guard, {.prefill = 5, .n_tokens = 16}), 3 + 0.8 + 5, 1e-9);
}

// Answer after answer loses what it may, until the bank has nothing left but a share of all tokens.
TEST(Guard, TheBankPaysForAllAnswers) {
  Guard guard;
  double lost = 0;
  for (int answer = 0; answer < 20; ++answer) {
    Guard::Account account;
    const double loss = allowed(guard, account);
    count(guard, account, loss, 1);
    lost += loss;
  }
  EXPECT_NEAR(lost, 20 + 0.01 * 19, 0.05);
  Guard::Account account{.prefill = 100, .n_tokens = 500};
  EXPECT_LT(allowed(guard, account), 0.1);
  for (int i = 0; i < 100; ++i) count(guard, account, 0, 1);
  EXPECT_NEAR(allowed(guard, account), 1, 0.1);
  count(guard, account, 0, 8);  // savings
  EXPECT_NEAR(allowed(guard, account), 8, 0.2);
  for (int i = 0; i < 100; ++i) count(guard, account, 0, 8);
  EXPECT_NEAR(allowed(guard, account), 20, 1e-9);  // it holds no more
}

TEST(Guard, TheBankIsRestoredAsItWasLeft) {
  Guard guard;
  guard.restore(5);
  EXPECT_EQ(guard.bank(), 5);
  EXPECT_NEAR(allowed(guard, {.n_tokens = 1000}), 5, 1e-9);
  guard.restore(1e9);
  EXPECT_EQ(guard.bank(), Guard::bank_max());
  guard.restore(-1);
  EXPECT_EQ(guard.bank(), 0);
}

// A sequence that is behind lets others draft no more; when it has got further, it does again.
TEST(Guard, ASequenceWaitsForOthersOnlySoLong) {
  Guard guard;
  Guard::Account drafts, waits;
  const auto bound = [&](double passes) {
    const Guard::Share shares[] = {{&drafts, passes}, {&waits, 0}};
    return guard.exceeded(shares, 2);
  };
  drafts.loss = -10;
  waits.waited = 1.9;
  EXPECT_EQ(bound(0.09), Bound::none);
  EXPECT_EQ(bound(0.11), Bound::patience);
  waits.n_tokens = 100;
  EXPECT_EQ(bound(1), Bound::none);
  EXPECT_EQ(bound(1.61), Bound::patience);
  waits.own = -1;  // its own drafts have saved a pass
  EXPECT_EQ(bound(1.49), Bound::none);
}

// Whatever is drafted, and whatever comes of it: steps that the guard allows keep all bounds, and
// the sum of losses over any window of steps is at most what the bank holds and takes.
TEST(Guard, AllowedStepsKeepAllBounds) {
  for (int seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto up_to = [&](double most) {
      return std::uniform_real_distribution<double>(0, most)(random);
    };
    Guard guard;
    std::vector<Guard::Account> accounts(1 + random() % 4);
    double lost = 0, least = 0, worst = 0;  // less the share of tokens, since any earlier step
    const bool is_hopeless = seed % 2 == 0;
    for (int step = 0; step < 400; ++step) {
      const auto n = static_cast<int>(accounts.size());
      if (random() % 40 == 0) accounts[random() % n] = {.prefill = up_to(20)};
      std::vector<Guard::Share> shares;
      for (Guard::Account& account : accounts)
        shares.push_back({&account, random() % 2 == 0 ? up_to(random() % 3 == 0 ? 8 : 0.5) : 0});
      if (guard.exceeded(shares, n) != Bound::none)
        for (Guard::Share& share : shares) share.passes = 0;
      for (Guard::Share& share : shares) {
        share.n_tokens = is_hopeless ? 1 : 1 + static_cast<int>(random() % 4);
        lost += share.passes * n - (share.n_tokens - 1) - 0.01 * share.n_tokens;
      }
      least = std::min(least, lost);
      worst = std::max(worst, lost - least);
      guard.count(shares, n);
      EXPECT_GE(guard.bank(), 0);
      for (const Guard::Account& account : accounts) {
        EXPECT_LE(account.loss, Guard::loss_max(account) + 1e-9);
        EXPECT_LE(account.behind(), Guard::patience(account) + 1e-9);
      }
    }
    EXPECT_LE(worst, Guard::bank_max() + 1e-9);
    if (is_hopeless) {
      EXPECT_GT(worst, 0.8 * Guard::bank_max());
    }
  }
}

}  // namespace
}  // namespace outrider

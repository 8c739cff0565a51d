#include "speculation/guard.h"

#include <algorithm>

namespace outrider {
namespace {

// An answer may lose so many passes, and a share of its tokens more. Three passes are what finding
// out takes where a draft model is wrong: some 0.1 s for a model of 1.5B.
constexpr double kLossAtFirst = 3, kLossPerToken = 0.05;
// Beside that as much as its prompt took: who waits for a prompt does not notice as much again. Of
// that a short answer gets a part.
constexpr double kPrefillMax = 8, kPrefillOfShort = 2;
constexpr int kShortAnswer = 16;  // tokens
// All answers together may lose so many passes, and a share of all tokens more.
constexpr double kBankMax = 20, kBankPerToken = 0.01;
// A sequence may be behind by so much for the drafts of others.
constexpr double kPatienceAtFirst = 2, kPatiencePerToken = 0.015;

}  // namespace

double Guard::bank_max() {
  return kBankMax;
}

void Guard::restore(double bank) {
  bank_ = std::clamp(bank, 0.0, kBankMax);
}

double Guard::loss_max(const Account& account) {
  const double of_prefill = account.n_tokens < kShortAnswer ? kPrefillOfShort : kPrefillMax;
  return kLossAtFirst + kLossPerToken * account.n_tokens + std::min(account.prefill, of_prefill);
}

double Guard::patience(const Account& account) {
  return kPatienceAtFirst + kPatiencePerToken * account.n_tokens;
}

Guard::Bound Guard::exceeded(std::span<const Share> shares, int n_sequences) const {
  double sum = 0;
  for (const Share& share : shares) sum += share.passes;
  if (sum * n_sequences > bank_) return Bound::bank;
  for (const Share& share : shares) {
    const Account& account = *share.account;
    const double loss = account.loss + share.passes * n_sequences;
    if (share.passes > 0 && loss > loss_max(account)) return Bound::loss;
    Account after = account;
    after.waited += sum - share.passes;
    after.own += share.passes;
    if (after.behind() > patience(account)) return Bound::patience;
  }
  return Bound::none;
}

void Guard::count(std::span<const Share> shares, int n_sequences) {
  double sum = 0;
  for (const Share& share : shares) sum += share.passes;
  for (const Share& share : shares) {
    Account& account = *share.account;
    const double loss = share.passes * n_sequences - (share.n_tokens - 1);
    account.loss += loss;
    account.waited += sum - share.passes;
    account.own += share.passes - (share.n_tokens - 1);
    account.n_tokens += share.n_tokens;
    bank_ += kBankPerToken * share.n_tokens - loss;
  }
  bank_ = std::min(bank_, kBankMax);
}

}  // namespace outrider

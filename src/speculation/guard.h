// What drafts may cost. Pricing (planner.h) says which drafts are expected to pay; the guard
// bounds what is lost where that was wrong, for each sequence and for all of them together, as in
// conservative bandits (Wu et al. 2016, arXiv:1602.04282).
//
// The unit is one pass without drafts at the load of the step. The *loss* of a sequence is net:
// what its drafts took, of the time of all sequences that waited for them, less the tokens that
// they saved. The *bank* pays the losses of all sequences and takes their savings.

#pragma once

#include <algorithm>
#include <span>

namespace outrider {

class Guard {
 public:
  // Of one sequence, from its prompt to its end.
  struct Account {
    double prefill = 0;  // passes that its prompt takes without drafts
    int n_tokens = 0;    // of its answer
    double loss = 0;     // below 0: saved
    // Passes that it waited for drafts of others, and that its own took, of its own time alone,
    // less the tokens that these saved.
    double waited = 0, own = 0;

    // How far it is behind plain decoding by waiting for others.
    double behind() const { return waited + std::min(own, 0.0); }
  };
  // A sequence's part of a step.
  struct Share {
    Account* account;
    double passes = 0;  // that its own drafts take
    int n_tokens = 0;   // that the step brought; not looked at beforehand
  };

  // The bound that a step with these shares, for which n_sequences wait, would exceed if no draft
  // were accepted.
  enum class Bound {
    none,
    loss,      // a sequence that drafts would lose more than loss_max()
    bank,      // the losses would be more than the bank holds
    patience,  // a sequence would be further behind() than patience()
  };
  Bound exceeded(std::span<const Share> shares, int n_sequences) const;
  void count(std::span<const Share> shares, int n_sequences);

  static double loss_max(const Account& account);
  static double patience(const Account& account);

  double bank() const { return bank_; }
  static double bank_max();
  void restore(double bank);  // as it was left

 private:
  double bank_ = bank_max();
};

}  // namespace outrider

// Where in a predicted text an answer stands: exact while they agree, and found again after the
// answer left something out, added something or put something else in its place.

#pragma once

#include <span>
#include <vector>

#include "base/token.h"

namespace outrider {

class Alignment {
 public:
  Alignment() : Alignment(std::span<const Token>()) {}
  explicit Alignment(std::span<const Token> prediction);

  void append(Token token);     // of the answer
  void truncate(int n_tokens);  // keeps the first of them
  int size() const { return static_cast<int>(answer_.size()); }

  // A place of the prediction from which the answer may go on like it.
  struct Place {
    int index;
    int n_matched;       // tokens of the answer's end that stand before it, too
    double probability;  // that the answer goes on there
  };
  // The most likely first; none if the prediction has nothing more to say.
  std::vector<Place> places() const;
  // The probability that the answer's next token is the prediction's, if the last n_matched were.
  static double agreement(int n_matched);

  std::span<const Token> prediction() const { return prediction_; }

 private:
  // After a token of the answer.
  struct State {
    int place = 0;      // the best guess at where in the prediction the answer stands
    int n_matched = 0;  // tokens before both that agree
    int sure = 0;       // where it surely stood last,
    int n_since = 0;    // and how many tokens came since
  };
  State found_again(State state) const;

  std::vector<Token> prediction_, answer_;
  std::vector<State> states_;  // [size() + 1]
};

}  // namespace outrider

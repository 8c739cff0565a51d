// The suffix automaton of a text: Blumer et al. 1985, "The smallest automaton recognizing the
// subwords of a text". A state stands for all strings that end at the same places of the text; it
// knows how many these are and what followed. A text of n tokens has fewer than 2 n states and 3 n
// transitions, and takes a token in constant time on average; it gives back its last tokens in the
// time that they took.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/token.h"

namespace outrider {

class SuffixAutomaton {
 public:
  using State = std::int32_t;
  static constexpr State kEmpty = 0;  // the empty string

  // A string of the text: one of a state's.
  struct Match {
    State state = kEmpty;
    int length = 0;
  };
  struct Transition {
    Token token;
    State to;
  };

  SuffixAutomaton();

  void append(Token token);
  void remove_last();  // of at least one token

  // The longest string that ends the text and also occurs before its end.
  Match end_before() const;
  // The longest end of `match` followed by `token` that occurs. `match` may be of another text.
  Match after(Match match, Token token) const;
  // The longest proper end of the state's strings that occurs elsewhere, too; the empty string has
  // none.
  Match shorter(State state) const;

  // How often the state's strings occur in the text; too low for short ones in a text that repeats
  // itself much (kCounted).
  int count(State state) const { return states_[state].count; }
  std::optional<State> next(State state, Token token) const;
  // What followed the state's strings, up to n_max tokens of it, the latest new one first.
  std::vector<Transition> followers(State state, std::size_t n_max) const;

  // The most that it takes for each token of a text, whatever the text is.
  static const std::size_t kBytesPerToken;

 private:
  // Suffix links that counting follows from the end of the text. Only texts that repeat one short
  // string have more, whose own counts do not matter then.
  static constexpr int kCounted = 64;
  static constexpr std::int32_t kNone = -1;

  struct Node {
    std::int32_t length;  // of its longest string
    State shorter;        // suffix link
    std::int32_t count;
    std::int32_t first;  // transition
  };
  struct Edge {
    State from, to;
    Token token;
    std::int32_t next;  // of the same state
  };

  // What an append() changed besides adding states and transitions at the ends of their lists.
  struct Step {
    State last;
    std::int32_t n_states, n_edges, n_redirected;
    State divided, shorter;  // the state that lost its shorter strings, and its link before; kNone
  };
  struct Redirected {
    std::int32_t edge;
    State before;
  };

  template <typename F>
  void for_counted(const F& f);
  State add_state(int length);
  std::int32_t edge(State from, Token token) const;  // kNone: there is none
  void add_edge(State from, Token token, State to);
  std::size_t slot(State from, Token token) const;
  State divide(State state, int length);

  std::vector<Node> states_;
  std::vector<Edge> edges_;
  std::vector<std::int32_t> slots_;  // edges by the hash of their state and token; kNone
  State last_ = kEmpty;              // of the whole text
  std::vector<Step> steps_;          // one for each token
  std::vector<Redirected> redirected_;
};

}  // namespace outrider

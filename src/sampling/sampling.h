// What a request asks of every choice, and the state that its penalties need.

#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/token.h"
#include "numerics/choice.h"

namespace outrider {

struct SamplingParams {
  Filters filters;
  std::vector<TokenBias> bias;
  int repeat_last_n = 64;  // tokens of prompt and path that penalties look at; 0: none, -1: all
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;  // index among parallel answers
};

// A value: each path of a draft tree has its own. State after a text = advance over its tokens from
// the empty state.
class ProcessorState {
 public:
  explicit ProcessorState(const SamplingParams& params);

  void advance(Token token);
  void advance(std::span<const Token> tokens) {
    for (Token token : tokens) advance(token);
  }
  // Of the last repeat_last_n tokens, each once, ids ascending. Empty if no penalty is on.
  std::vector<TokenCount> counts() const;

 private:
  std::size_t window_;  // 0: nothing to track
  std::deque<Token> last_;
};

// The request for the choice that follows a text: `position` counts that text's tokens. The views
// of the result point into `params` and `counts`, which must outlive it.
ChoiceRequest choice_request(const SamplingParams& params, std::span<const TokenCount> counts,
                             int row, int position);

}  // namespace outrider

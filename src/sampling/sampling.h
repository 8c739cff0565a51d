// What a request asks of every choice, and the state that its penalties need.

#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "base/token.h"
#include "numerics/choice.h"

namespace outrider {

// How long an answer may reason.
struct ReasoningLimit {
  int n_prompt = 0;             // tokens of the prompt
  int n_tokens = 0;             // of the answer; if it still reasons after them, `close` is forced
  Token open = -1, close = -1;  // it reasons between these; open -1: no single token opens it
  bool is_begun = false;        // the prompt has opened the reasoning
};

struct SamplingParams {
  Filters filters;
  std::vector<TokenBias> bias;
  int repeat_last_n = 64;  // tokens of prompt and path that penalties look at; 0: none, -1: all
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;  // index among parallel answers
  std::optional<ReasoningLimit> reasoning = {};
};

// 0 or less, or at least kTemperatureMin.
bool temperature_in_range(float temperature);
// Throws Error if the temperature is out of range.
void check_sampling(const SamplingParams& params);

// What choices need to know of a sequence: the tokens that penalties look at, its last
// repeat_last_n, and whether it reasons. State after a sequence = advance over its tokens from the
// empty state. Paths of a draft tree have no state of their own: they are given. A value.
class ChoiceState {
 public:
  explicit ChoiceState(const SamplingParams& params);

  // The tokens become part of the sequence.
  void advance(std::span<const Token> tokens);

  // Of the last repeat_last_n tokens of the sequence followed by `path`: each token once, ids
  // ascending. Empty if no penalty is on. Takes memory and time for the different tokens among them
  // and for the path, not for the length of the sequence.
  std::vector<TokenCount> counts(std::span<const Token> path = {}) const;

  // The token that must follow the sequence and `path`; nothing: the model decides.
  std::optional<Token> forced(std::span<const Token> path = {}) const;

 private:
  std::size_t window_;              // 0: nothing to track
  std::deque<Token> last_;          // the sequence's tokens in the window; empty if none leaves it
  std::vector<TokenCount> counts_;  // of the sequence's tokens in the window, ids ascending
  std::optional<ReasoningLimit> limit_;
  int length_ = 0;  // of the sequence
  bool reasons_;
};

// The request for the choice that follows a sequence: `position` counts that sequence's tokens. The
// views of the result point into `params` and `counts`, which must outlive it.
ChoiceRequest choice_request(const SamplingParams& params, std::span<const TokenCount> counts,
                             int row, int position);

}  // namespace outrider

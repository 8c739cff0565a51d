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
  int n_prompt = 0;             // tokens of the text before the answer
  int n_tokens = 0;             // of the answer; if it reasons after them, `close` follows
  Token open = -1, close = -1;  // it reasons between these; -1: no token opens it
  bool is_begun = false;        // by the prompt
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

// What choices need to know of a text: the tokens that penalties look at, its last repeat_last_n,
// and whether it reasons. State after a text = advance over its tokens from the empty state. Paths
// of a draft tree have no state of their own: they are given. A value.
class ProcessorState {
 public:
  explicit ProcessorState(const SamplingParams& params);

  // The tokens become part of the text.
  void advance(std::span<const Token> tokens);

  // Of the last repeat_last_n tokens of the text followed by `path`: each token once, ids
  // ascending. Empty if no penalty is on. Takes memory and time for the different tokens among them
  // and for the path, not for the length of the text.
  std::vector<TokenCount> counts(std::span<const Token> path = {}) const;

  // The token that must follow the text and `path`, whatever the model says; nothing: as it says.
  std::optional<Token> forced(std::span<const Token> path = {}) const;

 private:
  std::size_t window_;              // 0: nothing to track
  std::deque<Token> last_;          // the text's tokens in the window; empty if no token leaves it
  std::vector<TokenCount> counts_;  // of the text's tokens in the window, ids ascending
  std::optional<ReasoningLimit> limit_;
  int length_ = 0;  // of the text
  bool reasons_;
};

// The request for the choice that follows a text: `position` counts that text's tokens. The views
// of the result point into `params` and `counts`, which must outlive it.
ChoiceRequest choice_request(const SamplingParams& params, std::span<const TokenCount> counts,
                             int row, int position);

}  // namespace outrider

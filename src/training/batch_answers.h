// Answers to many prompts, many at a time, with what the target computes of them.

#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace outrider {

struct PromptToAnswer {
  int number = 0;             // the caller's
  std::vector<Token> tokens;  // not empty, and the context has room for it and an answer
  SamplingParams sampling;    // an answer depends on it and the tokens alone
  int n_predict = 0;          // tokens at most, at least one
};

struct BatchAnswer {
  int number = 0;
  std::vector<Token> tokens;  // prompt and answer, an end token among them
  int n_prompt = 0;
  bool has_ended = false;  // with an end token or a stop text
  float temperature = 0;
  // bf16, [rows, taps, embedding]: the taps at positions 1 to tokens.size() - 2. Position 0, on
  // which attention rests where it has nothing to see, has values like no other (Xiao et al. 2023,
  // arXiv:2309.17453); the last token has not been computed. Empty without taps.
  std::vector<std::uint16_t> features;
};

// Round to nearest even; NaNs become quiet.
std::uint16_t float_to_bf16(float value);

struct BatchOptions {
  int n_parallel = 1;            // the target has as many free sequences
  std::vector<int> taps = {};    // as ForwardOptions has them; none: no features
  bool cuts_repetition = false;  // an answer that repeats itself ends there (repetition.h)
  // End an answer, of which their tokens are a part (StopParams::texts).
  std::vector<std::string> stop_texts = {};
};

// Answers the prompts, beginning in their order; `take` gets each as it ends. Which are answered
// together changes no bit of any. The engine has no drafters, and its sequences share no pages.
// `stepped` is called after each step with how many tokens it computed, answers' and prompts'; what
// it throws ends the work. Throws Error for what makes an answer fail.
void answer_batch(Engine& engine, const Tokenizer& tokenizer,
                  std::span<const PromptToAnswer> prompts, const BatchOptions& options,
                  const std::function<void(BatchAnswer)>& take,
                  const std::function<void(int n_tokens)>& stepped);

}  // namespace outrider

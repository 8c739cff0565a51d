// What an answer shall be to.

#pragma once

#include <vector>

#include "base/token.h"
#include "sampling/sampling.h"
#include "sampling/stop.h"

namespace outrider {

struct Request {
  std::vector<Token> prompt;  // the whole text from its beginning
  SamplingParams sampling;
  StopParams stop = {};
  // How the answer is expected to read mostly, if that is known. It may make it come faster.
  std::vector<Token> prediction = {};
};

// The request's, where end tokens are forbidden if it ignores them.
SamplingParams sampling_of(const Request& request, const Tokenizer& tokenizer);

}  // namespace outrider

#include "engine/request.h"

#include <limits>

namespace outrider {

SamplingParams sampling_of(const Request& request, const Tokenizer& tokenizer) {
  SamplingParams sampling = request.sampling;
  if (request.stop.ignore_eos)
    for (const Token token : tokenizer.end_tokens)
      sampling.bias.push_back({token, -std::numeric_limits<float>::infinity()});
  return sampling;
}

}  // namespace outrider

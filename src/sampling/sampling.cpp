#include "sampling/sampling.h"

#include <limits>
#include <map>

namespace outrider {
namespace {

std::size_t window(const SamplingParams& params) {
  const Filters& filters = params.filters;
  if (filters.repeat_penalty == 1 && filters.frequency_penalty == 0 &&
      filters.presence_penalty == 0)
    return 0;
  return params.repeat_last_n < 0 ? std::numeric_limits<std::size_t>::max()
                                  : static_cast<std::size_t>(params.repeat_last_n);
}

}  // namespace

ProcessorState::ProcessorState(const SamplingParams& params) : window_(window(params)) {}

void ProcessorState::advance(Token token) {
  if (window_ == 0) return;
  if (last_.size() == window_) last_.pop_front();
  last_.push_back(token);
}

std::vector<TokenCount> ProcessorState::counts() const {
  std::map<Token, int> counted;
  for (Token token : last_) ++counted[token];
  std::vector<TokenCount> counts;
  counts.reserve(counted.size());
  for (const auto& [token, count] : counted) counts.push_back({token, count});
  return counts;
}

ChoiceRequest choice_request(const SamplingParams& params, std::span<const TokenCount> counts,
                             int row, int position) {
  ChoiceRequest request;
  request.row = row;
  request.filters = params.filters;
  request.noise = {params.seed, params.stream, static_cast<std::uint32_t>(position)};
  request.bias = params.bias;
  request.counts = counts;
  return request;
}

}  // namespace outrider

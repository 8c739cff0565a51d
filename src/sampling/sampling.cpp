#include "sampling/sampling.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace outrider {
namespace {

constexpr std::size_t kWholeText = std::numeric_limits<std::size_t>::max();

std::size_t window(const SamplingParams& params) {
  const Filters& filters = params.filters;
  if (filters.repeat_penalty == 1 && filters.frequency_penalty == 0 &&
      filters.presence_penalty == 0)
    return 0;
  return params.repeat_last_n < 0 ? kWholeText : static_cast<std::size_t>(params.repeat_last_n);
}

// Whether it reasons after more tokens of the answer.
bool reasons_after(const ReasoningLimit& limit, bool reasons, std::span<const Token> tokens) {
  for (const Token token : tokens)
    if (token == limit.open || token == limit.close) reasons = token == limit.open;
  return reasons;
}

// counts: ids ascending, each token once.
void add(std::vector<TokenCount>& counts, Token token, int change) {
  const auto place = std::ranges::lower_bound(counts, token, {}, &TokenCount::token);
  if (place == counts.end() || place->token != token)
    counts.insert(place, {token, change});
  else if ((place->count += change) == 0)
    counts.erase(place);
}

}  // namespace

bool temperature_in_range(float temperature) {
  return temperature <= 0 || temperature >= kTemperatureMin;
}

void check_sampling(const SamplingParams& params) {
  const float temperature = params.filters.temperature;
  if (!temperature_in_range(temperature))
    throw Error("temperature {}: expected 0 for the best token, or at least {}", temperature,
                kTemperatureMin);
}

ChoiceState::ChoiceState(const SamplingParams& params)
    : window_(window(params)), limit_(params.reasoning), reasons_(limit_ && limit_->is_begun) {}

void ChoiceState::advance(std::span<const Token> tokens) {
  if (limit_) {
    const int n_of_prompt =
        std::clamp(limit_->n_prompt - length_, 0, static_cast<int>(tokens.size()));
    reasons_ = reasons_after(*limit_, reasons_, tokens.subspan(n_of_prompt));
    length_ += static_cast<int>(tokens.size());
  }
  if (window_ == 0) return;
  for (Token token : tokens) {
    add(counts_, token, 1);
    if (window_ == kWholeText) continue;
    last_.push_back(token);
    if (last_.size() <= window_) continue;
    add(counts_, last_.front(), -1);
    last_.pop_front();
  }
}

std::vector<TokenCount> ChoiceState::counts(std::span<const Token> path) const {
  if (window_ == 0) return {};
  if (path.size() > window_) path = path.last(window_);
  std::vector<TokenCount> counts;
  counts.reserve(counts_.size() + path.size());
  counts = counts_;
  for (Token token : path) add(counts, token, 1);
  if (window_ != kWholeText && last_.size() + path.size() > window_)
    for (std::size_t i = 0; i < last_.size() + path.size() - window_; ++i)
      add(counts, last_[i], -1);
  return counts;
}

std::optional<Token> ChoiceState::forced(std::span<const Token> path) const {
  if (!limit_ || length_ + std::ssize(path) - limit_->n_prompt != limit_->n_tokens)
    return std::nullopt;
  if (!reasons_after(*limit_, reasons_, path)) return std::nullopt;
  return limit_->close;
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

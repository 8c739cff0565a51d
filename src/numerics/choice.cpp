#include "numerics/choice.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "numerics/functions.h"
#include "numerics/reduce.h"
#include "numerics/softmax.h"

namespace outrider {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// No NaN, and the largest is finite.
bool usable(std::span<const float> logits) {
  float max = -kInfinity;
  for (const float logit : logits) {
    if (std::isnan(logit)) return false;
    max = std::max(max, logit);
  }
  return std::isfinite(max);
}

// The tokens that are left, sorted by `before`, a strict order.
template <typename Before>
std::vector<Token> ranked(std::span<const float> logits, Before before) {
  std::vector<Token> tokens;
  for (std::size_t id = 0; id < logits.size(); ++id)
    if (logits[id] > -kInfinity) tokens.push_back(static_cast<Token>(id));
  std::stable_sort(tokens.begin(), tokens.end(), before);  // equal ones stay in order of their ids
  return tokens;
}

void keep_first(std::span<float> logits, std::span<const Token> ranking, std::size_t count) {
  for (std::size_t i = count; i < ranking.size(); ++i)
    logits[static_cast<std::size_t>(ranking[i])] = -kInfinity;
}

// How many tokens of the ranking, at least one, it takes until their probabilities add up to
// `enough`.
std::size_t reach(std::span<const Token> ranking, std::span<const float> p, float enough) {
  float sum = 0;
  for (std::size_t i = 0; i < ranking.size(); ++i) {
    sum += p[static_cast<std::size_t>(ranking[i])];
    if (sum >= enough) return i + 1;
  }
  return ranking.size();
}

std::vector<Token> by_descending(std::span<const float> logits, std::span<const float> values) {
  return ranked(logits, [values](Token a, Token b) {
    return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
  });
}

void filter_typical(std::span<float> logits, float enough) {
  const float max = *std::max_element(logits.begin(), logits.end());
  std::vector<float> p(logits.size());
  for (std::size_t id = 0; id < p.size(); ++id) p[id] = exp_f32(logits[id] - max);
  const float log_sum = log_f32(lane_sum(p));
  softmax_reference(logits, p);
  std::vector<float> log_p(p.size());
  Lanes lanes{};
  for (std::size_t id = 0; id < p.size(); ++id) {
    log_p[id] = logits[id] - max - log_sum;
    if (p[id] > 0) lanes[id % kLanes] = std::fma(p[id], log_p[id], lanes[id % kLanes]);
  }
  const float entropy = -sum_of_lanes(lanes);
  const auto surprise = [&](Token token) {
    return std::fabs(-log_p[static_cast<std::size_t>(token)] - entropy);
  };
  const std::vector<Token> ranking =
      ranked(logits, [&](Token a, Token b) { return surprise(a) < surprise(b); });
  keep_first(logits, ranking, reach(ranking, p, enough));
}

void filter_top_p(std::span<float> logits, float enough) {
  std::vector<float> p(logits.size());
  softmax_reference(logits, p);
  const std::vector<Token> ranking = by_descending(logits, p);
  keep_first(logits, ranking, reach(ranking, p, enough));
}

void filter_min_p(std::span<float> logits, float min_p) {
  const float max = *std::max_element(logits.begin(), logits.end());
  for (float& logit : logits)
    if (logit < max && exp_f32(logit - max) < min_p) logit = -kInfinity;
}

void filter(std::span<float> logits, const Filters& f) {
  if (f.top_k > 0) {
    const std::vector<Token> ranking = by_descending(logits, logits);
    keep_first(logits, ranking, static_cast<std::size_t>(f.top_k));
  }
  if (f.typical_p < 1) filter_typical(logits, f.typical_p);
  if (f.top_p < 1) filter_top_p(logits, f.top_p);
  if (f.min_p > 0) filter_min_p(logits, f.min_p);
}

}  // namespace

void add_bias_and_penalties(const ChoiceRequest& request, std::span<float> logits) {
  const auto in_vocabulary = [&](Token token) {
    return token >= 0 && static_cast<std::size_t>(token) < logits.size();
  };
  for (const TokenBias& entry : request.bias)
    if (in_vocabulary(entry.token)) logits[static_cast<std::size_t>(entry.token)] += entry.bias;
  const Filters& f = request.filters;
  for (const TokenCount& entry : request.counts) {
    if (!in_vocabulary(entry.token) || entry.count <= 0) continue;
    float& logit = logits[static_cast<std::size_t>(entry.token)];
    logit = logit > 0 ? logit / f.repeat_penalty : logit * f.repeat_penalty;
    logit -= static_cast<float>(entry.count) * f.frequency_penalty + f.presence_penalty;
  }
}

std::vector<float> processed_logits(std::span<const float> given, const ChoiceRequest& request) {
  std::vector<float> logits(given.begin(), given.end());
  for (float& logit : logits) logit += 0.0f;
  add_bias_and_penalties(request, logits);
  if (!request.allowed.empty()) {
    for (std::size_t id = 0; id < logits.size(); ++id) {
      const std::size_t word = id / 64;
      if (word >= request.allowed.size() || (request.allowed[word] >> id % 64 & 1) == 0)
        logits[id] = -kInfinity;
    }
  }
  return logits;
}

Choice choose_reference(std::span<const float> given, const ChoiceRequest& request) {
  Choice choice;
  if (request.wants_logits) choice.logits.assign(given.begin(), given.end());
  if (!usable(given)) return choice;
  std::vector<float> logits = processed_logits(given, request);
  if (!usable(logits)) return choice;

  std::vector<float> scores = logits;
  if (request.filters.temperature > 0) {
    filter(logits, request.filters);
    for (float& logit : logits)
      if (logit > -kInfinity) logit /= request.filters.temperature;  // which may be infinite
    if (!usable(logits)) return choice;
    for (std::size_t id = 0; id < logits.size(); ++id)
      scores[id] = logits[id] + gumbel(request.noise, static_cast<Token>(id));
  }

  const std::vector<Token> ranking = by_descending(logits, scores);
  choice.token = ranking.front();
  if (request.n_best <= 0 && !request.wants_probabilities) return choice;
  std::vector<float> p(logits.size());
  softmax_reference(logits, p);
  const std::size_t n_best =
      std::min(ranking.size(), static_cast<std::size_t>(std::max(0, request.n_best)));
  for (const Token token : std::span(ranking).first(n_best)) {
    const auto id = static_cast<std::size_t>(token);
    choice.best.push_back({token, scores[id], p[id]});
  }
  if (request.wants_probabilities)
    for (std::size_t id = 0; id < p.size(); ++id)
      if (p[id] > 0) choice.probabilities.push_back({static_cast<Token>(id), p[id]});
  return choice;
}

}  // namespace outrider

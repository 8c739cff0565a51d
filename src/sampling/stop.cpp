#include "sampling/stop.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace outrider {
namespace {

struct FoundStop {
  std::size_t end, begin;
  friend auto operator<=>(const FoundStop&, const FoundStop&) = default;
};

// The stop string that is complete first, or the longest of these.
std::optional<FoundStop> find_stop(const std::string& text, const std::vector<std::string>& stops) {
  std::optional<FoundStop> first;
  for (const std::string& stop : stops) {
    const std::size_t begin = text.find(stop);
    if (begin == std::string::npos) continue;
    const FoundStop found{begin + stop.size(), begin};
    if (!first || found < *first) first = found;
  }
  return first;
}

// Length of the longest tail of `text` that a stop string begins with.
std::size_t possible_stop(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops)
    for (std::size_t n = std::min(text.size(), stop.size() - 1); n > longest; --n)
      if (text.compare(text.size() - n, n, stop, 0, n) == 0) longest = n;
  return longest;
}

// Whether its text is invisible, unless somebody asked for it.
bool is_special(TokenKind kind) {
  return kind == TokenKind::control || kind == TokenKind::unknown || kind == TokenKind::unused;
}

}  // namespace

std::string_view name(FinishReason reason) {
  return reason == FinishReason::stop ? "stop" : "length";
}

StopRules::StopRules(const Tokenizer& tokenizer, StopParams params)
    : tokenizer_(&tokenizer),
      params_(std::move(params)),
      decoder_(tokenizer, params_.shown_tokens) {
  for (const std::string& stop : params_.texts) {
    if (stop.empty()) throw Error("a stop string is empty; give at least one character");
    if (!is_well_formed(stop))
      throw Error("the stop string \"{}\" is not UTF-8; give whole characters", well_formed(stop));
  }
}

std::optional<FinishReason> StopRules::push(Token token) {
  ++n_tokens_;
  if (is_special(tokenizer_->kind(token))) {
    const auto stop = std::ranges::find(params_.texts, tokenizer_->text(token));
    if (stop != params_.texts.end()) {
      finish();
      stopped_by_ = *stop;
      return FinishReason::stop;
    }
  }
  const std::vector<Token>& ends = tokenizer_->end_tokens;
  if (!params_.ignore_eos && std::find(ends.begin(), ends.end(), token) != ends.end()) {
    finish();
    return FinishReason::stop;
  }
  held_ += decoder_.push(token);
  if (const auto stop = find_stop(held_, params_.texts)) {
    stopped_by_ = held_.substr(stop->begin, stop->end - stop->begin);
    ready_.append(held_, 0, stop->begin);
    held_.clear();
    return FinishReason::stop;
  }
  if (n_left() == 0) {
    finish();
    return FinishReason::length;
  }
  const std::size_t showable = held_.size() - possible_stop(held_, params_.texts);
  ready_.append(held_, 0, showable);
  held_.erase(0, showable);
  return std::nullopt;
}

void StopRules::finish() {
  ready_ += std::exchange(held_, {});
  ready_ += decoder_.finish();
}

std::string StopRules::take_text() {
  return std::exchange(ready_, {});
}

std::optional<int> StopRules::n_left() const {
  if (params_.n_predict < 0) return std::nullopt;
  return std::max(0, params_.n_predict - n_tokens_);
}

}  // namespace outrider

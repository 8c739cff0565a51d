// What engines are compared with: plain decoding of a fake model, without engine and cache.

#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "engine/request.h"
#include "model/fake_backend.h"
#include "sampling/fake_tokenizer.h"

namespace outrider {

inline FakeTokenizer words() {
  std::vector<std::string> entries;
  for (char letter = 'a'; letter < 'a' + 23; ++letter) entries.emplace_back(1, letter);
  FakeTokenizer tokenizer(entries);
  tokenizer.end_tokens = {0};
  return tokenizer;
}

// What the user sees.
struct Outcome {
  std::vector<Token> tokens;
  std::string text;
  std::optional<FinishReason> finished;
  bool operator==(const Outcome&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
    for (Token token : outcome.tokens) out << token << ' ';
    return out << '"' << outcome.text << "\" "
               << (outcome.finished ? static_cast<int>(*outcome.finished) : -1);
  }
};

// Plain decoding: no engine, no cache, no drafts.
inline Outcome decode_plainly(const FakeModel& model, const Tokenizer& tokenizer,
                              const Request& request, int context) {
  std::vector<Token> text = request.prompt;
  StopRules rules(tokenizer, request.stop);
  Outcome outcome;
  if (rules.n_left() == 0) outcome.finished = FinishReason::length;
  while (!outcome.finished) {
    ChoiceState state(request.sampling);
    state.advance(text);
    const auto counts = state.counts();
    const ChoiceRequest question =
        choice_request(request.sampling, counts, 0, static_cast<int>(text.size()));
    const Token choice = choose_reference(model.logits(text), question).token.value();
    text.push_back(state.forced().value_or(choice));
    outcome.tokens.push_back(text.back());
    outcome.finished = rules.push(text.back());
    if (!outcome.finished && static_cast<int>(text.size()) == context) {
      rules.finish();
      outcome.finished = FinishReason::length;
    }
    outcome.text += rules.take_text();
  }
  return outcome;
}

inline SamplingParams greedy() {
  SamplingParams params;
  params.filters.temperature = 0;
  return params;
}

// With temperature alone, or with all that changes a choice.
inline SamplingParams sampled(std::uint64_t seed, bool everything) {
  SamplingParams params;
  params.seed = seed;
  params.filters.temperature = 0.9f;
  if (everything) {
    params.filters.top_k = 20;
    params.filters.typical_p = 0.98f;
    params.filters.top_p = 0.97f;
    params.filters.min_p = 0.01f;
    params.filters.repeat_penalty = 1.2f;
    params.filters.frequency_penalty = 0.1f;
    params.filters.presence_penalty = 0.2f;
    params.repeat_last_n = 6;
    params.bias = {{0, -4.0f}, {5, 0.5f}};
  }
  return params;
}

}  // namespace outrider

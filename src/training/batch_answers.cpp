#include "training/batch_answers.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <optional>

#include "base/error.h"
#include "training/repetition.h"

namespace outrider {

std::uint16_t float_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

namespace {

class Batch {
 public:
  Batch(Engine& engine, const Tokenizer& tokenizer, const BatchOptions& options)
      : engine_(engine), tokenizer_(tokenizer), options_(options) {
    if (options.taps.empty()) return;
    engine.watch_computed(options.taps,
                          [this](const Pass& pass, std::span<const ComputedText> texts) {
                            for (const ComputedText& text : texts) keep_features(pass, text);
                          });
  }
  ~Batch() {
    living_.clear();
    engine_.watch_computed({}, {});
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  bool is_full() const { return std::ssize(living_) == options_.n_parallel; }
  bool is_empty() const { return living_.empty(); }

  void begin(const PromptToAnswer& prompt) {
    Living living{.prompt = &prompt, .generation = {}, .features = {}, .repetition = {}};
    StopRules stop(tokenizer_, {.n_predict = prompt.n_predict, .texts = options_.stop_texts});
    living.generation = engine_.begin(prompt.tokens, prompt.sampling, std::move(stop));
    const int number = living.generation->draft_sequence.value;
    living_.emplace(number, std::move(living));
  }

  // Returns how many tokens were computed.
  int step(const std::function<void(BatchAnswer)>& take) {
    std::vector<Generation*> generations;
    for (auto& [number, living] : living_) generations.push_back(living.generation.get());
    const auto n_committed = [&] {
      int n = 0;
      for (const Generation* generation : generations)
        n += engine_.target().committed(generation->sequence);
      return n;
    };
    const int n_before = n_committed();
    engine_.step(generations);
    const int n_computed = n_committed() - n_before;
    for (auto at = living_.begin(); at != living_.end();) {
      Living& living = at->second;
      Generation& generation = *living.generation;
      if (generation.error) throw Error(*generation.error);
      std::optional<std::size_t> kept;
      if (options_.cuts_repetition)
        for (const Emitted& emitted : generation.emitted)
          if (living.repetition.push(emitted.token)) kept = living.repetition.kept();
      if (!kept && !generation.ended()) {
        ++at;
        continue;
      }
      take(answer_of(living, kept));
      at = living_.erase(at);
    }
    return n_computed;
  }

 private:
  struct Living {
    const PromptToAnswer* prompt;
    std::unique_ptr<Generation> generation;
    std::vector<std::uint16_t> features;
    Repetition repetition;  // of the answer
  };

  std::size_t row_values() const {
    return options_.taps.size() * static_cast<std::size_t>(engine_.target().spec().embedding);
  }

  void keep_features(const Pass& pass, const ComputedText& text) {
    Living& living = living_.at(text.sequence.value);
    for (int i = 0; i < std::ssize(text.rows); ++i) {
      const int position = text.first + i;
      if (position == 0) continue;
      CHECK(living.features.size() == (position - 1) * row_values());
      for (int tap = 0; tap < std::ssize(options_.taps); ++tap)
        for (const float value : engine_.target().read_tap(pass, tap, text.rows[i]))
          living.features.push_back(float_to_bf16(value));
    }
  }

  BatchAnswer answer_of(Living& living, std::optional<std::size_t> n_answer) const {
    const Generation& generation = *living.generation;
    BatchAnswer answer{.number = living.prompt->number,
                       .tokens = generation.tokens,
                       .n_prompt = generation.n_prompt,
                       .has_ended = generation.finish_reason == FinishReason::stop && !n_answer,
                       .temperature = living.prompt->sampling.filters.temperature,
                       .features = std::move(living.features)};
    if (n_answer) answer.tokens.resize(static_cast<std::size_t>(answer.n_prompt) + *n_answer);
    if (!options_.taps.empty()) {
      const std::size_t n_rows = answer.tokens.size() < 2 ? 0 : answer.tokens.size() - 2;
      CHECK(answer.features.size() >= n_rows * row_values());
      answer.features.resize(n_rows * row_values());
    }
    return answer;
  }

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const BatchOptions& options_;
  std::map<int, Living> living_;  // by the engine's number, so in the order of their beginning
};

}  // namespace

void answer_batch(Engine& engine, const Tokenizer& tokenizer,
                  std::span<const PromptToAnswer> prompts, const BatchOptions& options,
                  const std::function<void(BatchAnswer)>& take,
                  const std::function<void(int n_tokens)>& stepped) {
  Batch batch(engine, tokenizer, options);
  std::size_t next = 0;
  while (next < prompts.size() || !batch.is_empty()) {
    while (next < prompts.size() && !batch.is_full()) batch.begin(prompts[next++]);
    stepped(batch.step(take));
  }
}

}  // namespace outrider

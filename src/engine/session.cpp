#include "engine/session.h"

#include <utility>

#include "base/error.h"
#include "base/stopwatch.h"

namespace outrider {

double Completion::tokens_per_second() const {
  const int n = completion_tokens - first_tokens;
  return n > 0 && generation_ms > 0 ? 1000 * n / generation_ms : 0;
}

std::vector<Token> Session::tokens_of(std::span<const TextPiece> pieces) const {
  return tokenizer_.encode_whole(pieces);
}

std::vector<Token> Session::tokens_of(std::span<const Message> messages) const {
  if (!chat_template_)
    throw Error(Remedy::raw_prompt, "this model has no chat template; give it a text to continue");
  const std::vector<TextPiece> pieces =
      chat_template_->render(messages, /*add_generation_prompt=*/true);
  check_written(pieces);
  return tokens_of(pieces);
}

Completion Session::complete(Request request, const ShowText& show,
                             const std::atomic<bool>* interrupted) {
  begin(std::move(request), show);
  while (!(interrupted && interrupted->load()) && step()) {
  }
  return finish();
}

void Session::begin(Request request, ShowText show) {
  SamplingParams sampling = sampling_of(request, tokenizer_);
  StopRules rules(tokenizer_, std::move(request.stop));
  const Stopwatch watch;
  if (generation_)
    engine_.restart(*generation_, request.prompt, std::move(sampling), std::move(rules),
                    std::move(request.options));
  else
    generation_ = engine_.begin(request.prompt, std::move(sampling), std::move(rules),
                                std::move(request.options));
  answer_ = {.show = std::move(show), .ms = watch.ms()};
}

bool Session::step() {
  if (generation_->ended()) return false;
  const Stopwatch watch;
  Generation* const generations[] = {generation_.get()};
  engine_.step(generations);
  for (const Emitted& emitted : generation_->emitted) {
    answer_.completion.tokens.push_back(emitted.token);
    answer_.take(emitted.text, emitted.drafter.has_value());
  }
  answer_.ms += watch.ms();
  if (!answer_.first_ms && !generation_->emitted.empty()) {
    answer_.first_ms = answer_.ms;
    answer_.completion.first_tokens = static_cast<int>(generation_->emitted.size());
  }
  return !generation_->ended();
}

Completion Session::finish() {
  if (generation_->error) throw Error(*generation_->error);
  if (!generation_->finish_reason) answer_.take(generation_->take_held_text(), false);

  Completion& completion = answer_.completion;
  completion.finish_reason = generation_->finish_reason;
  completion.prompt_tokens = generation_->n_prompt;
  completion.cached_tokens = generation_->cached_tokens;
  completion.completion_tokens = static_cast<int>(completion.tokens.size());
  completion.prompt_ms = answer_.first_ms.value_or(answer_.ms);
  completion.generation_ms = answer_.ms - completion.prompt_ms;
  completion.counters = generation_->counters;
  for (std::size_t i = 0; i < engine_.drafters().size(); ++i)
    completion.draft.push_back(
        {std::string(engine_.drafters()[i]->name()), completion.counters.drafters[i]});
  return std::exchange(answer_, {}).completion;
}

void Session::Answer::take(std::string_view text, bool was_draft) {
  if (text.empty()) return;
  completion.text += text;
  if (show) show(text, was_draft);
}

int Session::n_tokens() const {
  return generation_ ? static_cast<int>(generation_->tokens.size()) : 0;
}

int Session::n_computed() const {
  return generation_ ? engine_.target().committed(generation_->sequence) : 0;
}

}  // namespace outrider

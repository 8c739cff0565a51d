#include "server/answer_request.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "server/answer_ids.h"
#include "server/validation.h"
#include "speculation/verifier.h"

namespace outrider {

AnswerRequest answer_request(const ServedModel& model, const GenerationFields& fields,
                             std::vector<Token> prompt, std::optional<std::size_t> api_key) {
  check_fields(model, fields);
  AnswerRequest answer{.request = {.prompt = std::move(prompt), .sampling = {}}};
  SamplingParams& sampling = answer.request.sampling;
  sampling.filters = model.filters(fields.filters);
  sampling.bias = fields.logit_bias;
  sampling.repeat_last_n = fields.repeat_last_n.value_or(model.repeat_last_n);
  sampling.seed = fields.seed.value();
  answer.request.stop = {.n_predict = fields.max_tokens.value_or(-1),
                         .texts = fields.stop,
                         .ignore_eos = fields.ignore_eos};
  std::vector<Token> prediction = model.tokenizer->encode(fields.prediction);
  prediction.resize(std::min(prediction.size(), static_cast<std::size_t>(model.context)));
  answer.request.options = {
      .prediction = std::move(prediction),
      .scope = cache_scope(model.keys_share_cache ? std::nullopt : api_key, fields.cache_salt),
      .draft_rows = fields.draft_rows,
      .verifier = make_verifier(fields.verifier.empty() ? model.verifier : fields.verifier,
                                model.typical_acceptance),
      .drafters = fields.drafters,
      .n_logprobs = fields.n_logprobs};
  answer.priority = fields.priority;
  return answer;
}

void add_answers(std::vector<AnswerRequest>& answers, const AnswerRequest& first, int n) {
  for (int i = 0; i < n; ++i) {
    answers.push_back(first);
    answers.back().request.sampling.stream = static_cast<std::uint32_t>(i);
  }
}

}  // namespace outrider

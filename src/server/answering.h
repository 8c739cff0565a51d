// From a request that was read to its answers on their way: what is asked of the scheduler, and
// what listens to it.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/http.h"
#include "server/answer_form.h"
#include "server/generation_fields.h"
#include "server/served_model.h"

namespace outrider {

// RequestError (400) if the prompt is empty, has tokens that the model does not have, or leaves no
// room for an answer that may have so many tokens (context_length_exceeded). `field` is where it
// comes from.
void check_prompt(const ServedModel& model, const std::vector<Token>& prompt,
                  const std::string& field, std::optional<int> max_tokens);

// Gives the request a seed if it has none.
void draw_seed(GenerationFields& fields);

// What a request, which has a seed, asks for to this prompt. `api_key` as in HttpRequest.
// RequestError (400) for tokens that the model does not have.
AnswerRequest answer_request(const ServedModel& model, const GenerationFields& fields,
                             std::vector<Token> prompt, std::optional<std::size_t> api_key);
// n of them: the first one's random choices are those that it would make alone.
void add_choices(std::vector<AnswerRequest>& answers, const AnswerRequest& first, int n);

// Texts of the same key and salt may share what was computed of them.
CacheScope cache_scope(std::optional<std::size_t> api_key, std::string_view salt);

// "chatcmpl-" and 24 random letters and digits.
std::string random_id(std::string_view prefix);
// Of an answer by this model, now. The request has a seed. RequestError (404) if it asks for
// another model.
AnswerHead answer_head(const ServedModel& model, const GenerationFields& fields,
                       std::string_view id_prefix);

struct Asked {
  std::vector<AnswerRequest> answers;
  std::unique_ptr<AnswerForm> form;
  bool stream = false;
  std::string path = {};       // of the request: errors have its shape
  std::string heartbeat = {};  // of a stream
};

// Submits the answers and returns; they go to the client as they come, and end when it is gone. A
// stream begins once all are submitted. RequestError if one cannot be: 429 if the scheduler's queue
// is full, or 400.
void give_answers(const ServedModel& model, Asked asked, std::shared_ptr<HttpReply> reply);

}  // namespace outrider

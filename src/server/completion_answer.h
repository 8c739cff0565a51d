// Answers of /v1/completions.

#pragma once

#include <memory>
#include <vector>

#include "server/answer_form.h"
#include "text/tokenizer.h"

namespace outrider {

struct CompletionAnswerOptions {
  AnswerHead head;
  int n = 1;  // choices for each prompt
  std::vector<std::vector<Token>> prompts = {};
  bool echo = false;           // choices begin with their prompt
  bool logprobs = false;       // choices have them; the scheduler was asked for them
  bool include_usage = false;  // in a stream
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
};

// One text_completion, or one for each step of an answer, then the usage if it is asked for, and
// "[DONE]". Answers count all choices for the first prompt, then those for the next.
std::unique_ptr<AnswerForm> completion_document(CompletionAnswerOptions options);
std::unique_ptr<AnswerForm> completion_stream(CompletionAnswerOptions options);

}  // namespace outrider

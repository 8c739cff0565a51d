// Answers of /v1/chat/completions.

#pragma once

#include <functional>
#include <memory>

#include "server/answer_form.h"
#include "text/answer_parser.h"
#include "text/tokenizer.h"

namespace outrider {

struct ChatAnswerOptions {
  AnswerHead head;
  int n = 1;                   // choices
  bool logprobs = false;       // choices have them; the scheduler was asked for them
  bool include_usage = false;  // in a stream
  AnswerFormat format = {};
  AnswerParserOptions parser = {};
  std::shared_ptr<const Tokenizer> tokenizer = nullptr;
  std::function<std::string()> new_call_id = {};
};

// A chat.completion, or chat.completion.chunk events: each choice's role, its parts, its finish
// reason; then the usage if it is asked for; "[DONE]".
std::unique_ptr<AnswerForm> chat_document(ChatAnswerOptions options);
std::unique_ptr<AnswerForm> chat_stream(ChatAnswerOptions options);

}  // namespace outrider

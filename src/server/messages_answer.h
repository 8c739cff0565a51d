// Answers of Anthropic's /v1/messages.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "server/answer_form.h"
#include "text/answer_parser.h"

namespace outrider {

struct MessagesAnswerOptions {
  AnswerHead head;
  int prompt_tokens = 0;
  bool shows_thinking = true;  // otherwise thinking blocks are empty
  AnswerFormat format = {};
  AnswerParserOptions parser = {};
  std::function<std::string()> new_call_id = {};
};

// A message, or its events: message_start; of each block content_block_start, content_block_delta
// and content_block_stop; message_delta, message_stop. Of one answer.
std::unique_ptr<AnswerForm> messages_document(MessagesAnswerOptions options);
std::unique_ptr<AnswerForm> messages_stream(MessagesAnswerOptions options);

}  // namespace outrider

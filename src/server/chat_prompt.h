// What a model reads of a conversation: its chat template's text, as tokens.

#pragma once

#include <string>
#include <vector>

#include "server/conversation.h"
#include "server/served_model.h"
#include "text/answer_parser.h"

namespace outrider {

struct ChatPrompt {
  std::vector<TextPiece> pieces;
  std::string begun;  // of the answer (AnswerParserOptions::begun)

  std::string text() const;
  std::vector<Token> tokens(const Tokenizer& tokenizer) const;
};

// Throws RequestError (400) where the model has no chat template, the template refuses the
// conversation, or what it asks for cannot be had with this model: tools, a way to reason, an
// answer that goes on after reasoning.
ChatPrompt chat_prompt(const ServedModel& model, const Conversation& conversation);

// For an answer to this prompt.
AnswerParserOptions parser_options(const Conversation& conversation, const ChatPrompt& prompt);

}  // namespace outrider

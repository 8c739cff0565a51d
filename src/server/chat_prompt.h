// What a model reads of a conversation: its chat template's text, as tokens.

#pragma once

#include <string>
#include <vector>

#include "server/conversation.h"
#include "server/served_model.h"

namespace outrider {

struct ChatPrompt {
  std::vector<TextPiece> pieces;
  std::string begun;  // of the answer (AnswerParserOptions::begun)

  std::string text() const;
  std::vector<Token> tokens(const Tokenizer& tokenizer) const;
};

// Throws RequestError (400) where the model has no chat template, the template refuses the
// conversation, or what it asks for cannot be had with this model: tools, a way to reason.
ChatPrompt chat_prompt(const ServedModel& model, const Conversation& conversation);

// A list of tools as the template and the parser of answers take it; empty: none are used.
std::string used_tools(const Conversation& conversation);

}  // namespace outrider

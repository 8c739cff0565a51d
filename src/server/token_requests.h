// Requests about tokens and prompts, by llama-server's names and by vLLM's: /tokenize, /detokenize,
// /apply-template.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "server/conversation.h"

namespace outrider {

// One of content (llama-server), prompt and messages (vLLM) is given.
struct TokenizeRequest : Conversation {
  std::string model = {};
  std::optional<std::string> content = {}, prompt = {};
  bool adds_special_tokens = false;  // BOS, where the model expects it
  bool parses_special_tokens = true;
  bool with_pieces = false;  // the tokens' texts
};

struct DetokenizeRequest {
  std::string model = {};
  std::vector<Token> tokens = {};
};

struct TemplateRequest : Conversation {
  std::string model = {};
};

// All throw RequestError (400). `unknown` hears of what is ignored.
TokenizeRequest read_tokenize_request(std::string_view body, const GenerationLimits& limits = {},
                                      const UnknownFieldListener& unknown = {});
DetokenizeRequest read_detokenize_request(std::string_view body,
                                          const GenerationLimits& limits = {},
                                          const UnknownFieldListener& unknown = {});
TemplateRequest read_template_request(std::string_view body, const GenerationLimits& limits = {},
                                      const UnknownFieldListener& unknown = {});

std::vector<FieldRow> tokenize_request_fields(const GenerationLimits& limits = {});
std::vector<FieldRow> detokenize_request_fields(const GenerationLimits& limits = {});
std::vector<FieldRow> template_request_fields(const GenerationLimits& limits = {});

}  // namespace outrider

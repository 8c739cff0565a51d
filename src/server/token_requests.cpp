#include "server/token_requests.h"

#include <fmt/format.h>

#include "server/generation_fields.h"

namespace outrider {
namespace {

// With what other fields decide the meaning of.
struct TokenizeFields : TokenizeRequest {
  std::optional<bool> add_special, parse_special, pieces;     // llama-server's
  std::optional<bool> add_special_tokens, return_token_strs;  // vLLM's
};

FieldReader<TokenizeFields> flag(std::optional<bool> TokenizeFields::*member) {
  return {"a boolean", [=](const FieldValue& value, TokenizeFields& fields) {
            fields.*member = value.boolean();
          }};
}

FieldTable<TokenizeFields> tokenize_table(const GenerationLimits& limits) {
  FieldTable<TokenizeFields> table;
  table.obeyed("content", text_field(&TokenizeFields::content),
               fmt::format("this, `prompt` or `messages`: a text of at most {} bytes",
                           limits.tokenized_bytes));
  table.obeyed("prompt", text_field(&TokenizeFields::prompt));
  table.add(conversation_fields(limits));
  table.obeyed("model", text_field(&TokenizeFields::model));
  table.obeyed("add_special", flag(&TokenizeFields::add_special),
               "of `content`; false if it is missing");
  table.obeyed("parse_special", flag(&TokenizeFields::parse_special),
               "of `content`; true if it is missing");
  table.obeyed("with_pieces", flag(&TokenizeFields::pieces), "of `content`");
  table.obeyed("add_special_tokens", flag(&TokenizeFields::add_special_tokens),
               "of `prompt` and `messages`; true if it is missing");
  table.obeyed("return_token_strs", flag(&TokenizeFields::return_token_strs),
               "of `prompt` and `messages`");
  return table;
}

FieldTable<DetokenizeRequest> detokenize_table(const GenerationLimits& limits) {
  FieldTable<DetokenizeRequest> table;
  table.obeyed(
      "tokens",
      FieldReader<DetokenizeRequest>{
          fmt::format("a list of at most {} tokens", limits.detokenized_tokens),
          [most = limits.detokenized_tokens](const FieldValue& value, DetokenizeRequest& request) {
            request.tokens = read_tokens(value, most);
          }},
      "required");
  table.obeyed("model", text_field(&DetokenizeRequest::model));
  return table;
}

FieldTable<TemplateRequest> template_table(const GenerationLimits& limits) {
  FieldTable<TemplateRequest> table;
  table.add(conversation_fields(limits));
  table.obeyed("model", text_field(&TemplateRequest::model));
  return table;
}

// Each API's flags go with its texts.
void check_flags(const TokenizeFields& fields) {
  struct Flag {
    const char* name;
    bool is_given, is_of_content;
  };
  const Flag flags[] = {
      {"add_special", fields.add_special.has_value(), true},
      {"parse_special", fields.parse_special.has_value(), true},
      {"with_pieces", fields.pieces.has_value(), true},
      {"add_special_tokens", fields.add_special_tokens.has_value(), false},
      {"return_token_strs", fields.return_token_strs.has_value(), false},
  };
  for (const Flag& flag : flags)
    if (flag.is_given && flag.is_of_content != fields.content.has_value())
      refuse_field(flag.name,
                   flag.is_of_content ? "only with content" : "only with prompt or messages");
}

void check_tokenize(TokenizeFields& fields) {
  const bool has_messages = !fields.messages.empty();
  if (fields.content.has_value() + fields.prompt.has_value() + has_messages != 1)
    refuse_field("content", "expected one of content, prompt and messages");
  check_flags(fields);
  if (has_messages) check_conversation(fields);
  if (fields.content) {
    fields.adds_special_tokens = fields.add_special.value_or(false);
    fields.parses_special_tokens = fields.parse_special.value_or(true);
    fields.with_pieces = fields.pieces.value_or(false);
  } else {
    fields.adds_special_tokens = fields.add_special_tokens.value_or(true);
    fields.with_pieces = fields.return_token_strs.value_or(false);
  }
}

}  // namespace

TokenizeRequest read_tokenize_request(std::string_view body, const GenerationLimits& limits,
                                      const UnknownFieldListener& unknown) {
  const Json json = parse_body(body);
  TokenizeFields fields;
  tokenize_table(limits).read(FieldValue(json, unknown), fields);
  check_tokenize(fields);
  return fields;
}

DetokenizeRequest read_detokenize_request(std::string_view body, const GenerationLimits& limits,
                                          const UnknownFieldListener& unknown) {
  const Json json = parse_body(body);
  FieldValue(json, unknown).at("tokens");
  DetokenizeRequest request;
  detokenize_table(limits).read(FieldValue(json, unknown), request);
  return request;
}

TemplateRequest read_template_request(std::string_view body, const GenerationLimits& limits,
                                      const UnknownFieldListener& unknown) {
  const Json json = parse_body(body);
  TemplateRequest request;
  template_table(limits).read(FieldValue(json, unknown), request);
  check_conversation(request);
  return request;
}

std::vector<FieldRow> tokenize_request_fields(const GenerationLimits& limits) {
  return tokenize_table(limits).rows();
}

std::vector<FieldRow> detokenize_request_fields(const GenerationLimits& limits) {
  return detokenize_table(limits).rows();
}

std::vector<FieldRow> template_request_fields(const GenerationLimits& limits) {
  return template_table(limits).rows();
}

}  // namespace outrider

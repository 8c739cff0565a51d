#include "server/chat_request.h"

#include "server/other_fields.h"

namespace outrider {
namespace {

// With what other fields decide the meaning of.
struct ChatFields : ChatRequest {
  bool logprobs = false;
  std::optional<int> top_logprobs, max_completion_tokens;
};

FieldReader<ChatFields> max_completion_tokens_field() {
  const FieldReader<GenerationFields> reader = token_limit_field(1);
  return {reader.takes, [reader](const FieldValue& value, ChatFields& fields) {
            GenerationFields limit;
            reader.read(value, limit);
            fields.max_completion_tokens = limit.max_tokens;
          }};
}

FieldTable<ChatFields> chat_table(const GenerationLimits& limits) {
  FieldTable<ChatFields> table;
  table.add(conversation_fields(limits));
  table.add(openai_fields(limits));
  table.obeyed("max_completion_tokens", max_completion_tokens_field(),
               "until the context's end if it is missing");
  table.obeyed("max_tokens", token_limit_field(1), "the same");
  table.obeyed("logprobs", boolean_field(&ChatFields::logprobs),
               "of the model, before temperature and filters");
  table.obeyed("top_logprobs", integer_field(&ChatFields::top_logprobs, 0, limits.top_logprobs),
               "only with `logprobs`");
  table.fall_back_on(other_fields<ChatFields>());
  return table;
}

void check_chat(ChatFields& fields) {
  check_generation(fields);
  check_conversation(fields);
  if (fields.max_tokens && fields.max_completion_tokens)
    refuse_field("max_tokens", "not together with max_completion_tokens");
  if (fields.max_completion_tokens) fields.max_tokens = fields.max_completion_tokens;
  if (fields.top_logprobs.value_or(0) > 0 && !fields.logprobs)
    refuse_field("top_logprobs", "only with \"logprobs\": true");
  if (fields.logprobs) fields.n_logprobs = fields.top_logprobs.value_or(0);
}

}  // namespace

ChatRequest read_chat_request(std::string_view body, const GenerationLimits& limits,
                              const UnknownFieldListener& unknown) {
  const Json json = parse_body(body);
  ChatFields fields;
  chat_table(limits).read(FieldValue(json, unknown), fields);
  check_chat(fields);
  return fields;
}

std::vector<FieldRow> chat_request_fields(const GenerationLimits& limits) {
  return chat_table(limits).rows();
}

}  // namespace outrider

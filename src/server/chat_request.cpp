#include "server/chat_request.h"

#include <limits>

namespace outrider {
namespace {

// With what other fields decide the meaning of.
struct Fields : ChatRequest {
  bool logprobs = false;
  std::optional<int> top_logprobs, max_completion_tokens;
};

FieldTable<Fields> make_table(const GenerationLimits& limits) {
  constexpr int kMost = std::numeric_limits<int>::max();
  FieldTable<Fields> table;
  table.add(conversation_fields(limits));
  table.add(openai_fields(limits));
  table.obeyed("max_completion_tokens", integer_field(&Fields::max_completion_tokens, 1, kMost),
               "until the context's end if it is missing");
  table.obeyed("max_tokens", integer_field(&Fields::max_tokens, 1, kMost), "the same");
  table.obeyed("logprobs", boolean_field(&Fields::logprobs),
               "of the model, before temperature and filters");
  table.obeyed("top_logprobs", integer_field(&Fields::top_logprobs, 0, limits.top_logprobs),
               "only with `logprobs`");
  table.refused("response_format", {R"({"type": "text"})"});
  table.refused("modalities", {R"(["text"])"});
  table.refused("verbosity", {R"("medium")"});
  table.refused("echo", {"false"});
  table.refused("include_reasoning", {"true"});
  for (const char* name : {"audio", "moderation", "web_search_options"}) table.refused(name);
  return table;
}

void check(Fields& fields) {
  check_generation(fields);
  check_conversation(fields);
  if (fields.max_tokens && fields.max_completion_tokens)
    refuse_field("max_tokens", "not together with max_completion_tokens");
  if (fields.max_completion_tokens) fields.max_tokens = fields.max_completion_tokens;
  if (fields.top_logprobs && !fields.logprobs)
    refuse_field("top_logprobs", "only with \"logprobs\": true");
  if (fields.logprobs) fields.n_logprobs = fields.top_logprobs.value_or(0);
}

}  // namespace

ChatRequest read_chat_request(std::string_view body, const GenerationLimits& limits) {
  const Json json = parse_body(body);
  Fields fields;
  make_table(limits).read(FieldValue(json), fields);
  check(fields);
  return fields;
}

std::vector<FieldRow> chat_request_fields(const GenerationLimits& limits) {
  return make_table(limits).rows();
}

}  // namespace outrider

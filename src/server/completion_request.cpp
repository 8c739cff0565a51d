#include "server/completion_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/other_fields.h"

namespace outrider {
namespace {

constexpr int kStandardTokens = 16;  // OpenAI's

CompletionPrompt read_one(const FieldValue& value) {
  if (value.json().is_string()) return value.text();
  if (!value.json().is_array()) value.expected("a string or a list of tokens");
  if (value.json().empty()) value.refuse("is empty; expected at least one token");
  return read_tokens(value);
}

FieldReader<CompletionRequest> prompt_field(const GenerationLimits& limits) {
  return {
      fmt::format("a string, a list of tokens, or a list of at most {} of these", limits.prompts),
      [most = limits.prompts](const FieldValue& value, CompletionRequest& fields) {
        const auto add = [&](const FieldValue& one) { fields.prompts.push_back(read_one(one)); };
        const Json& json = value.json();
        const bool is_one = !json.is_array() || (!json.empty() && json[0].is_number());
        is_one ? add(value) : value.each_item(add, 1, most);
      }};
}

// Clients that know chats better send false.
FieldReader<CompletionRequest> logprobs_field(int most) {
  return {integer_text(0, most) + ", or false",
          [=](const FieldValue& value, CompletionRequest& fields) {
            if (value.json() != false) fields.n_logprobs = static_cast<int>(value.integer(0, most));
          }};
}

FieldTable<CompletionRequest> completion_table(const GenerationLimits& limits) {
  FieldTable<CompletionRequest> table;
  table.obeyed("prompt", prompt_field(limits), "required");
  table.add(openai_fields(limits));
  table.obeyed("max_tokens", token_limit_field(0),
               fmt::format("{} if it is missing", kStandardTokens));
  table.obeyed("logprobs", logprobs_field(limits.top_logprobs),
               "of the model, before temperature and filters");
  table.obeyed("echo", boolean_field(&CompletionRequest::echo),
               "the answer begins with the prompt");
  table.obeyed("add_special_tokens", boolean_field(&CompletionRequest::adds_special_tokens),
               "whether BOS goes before a text, where the model expects it");
  table.fall_back_on(other_fields<CompletionRequest>());
  return table;
}

}  // namespace

CompletionRequest read_completion_request(std::string_view body, const GenerationLimits& limits,
                                          const UnknownFieldListener& unknown) {
  const Json json = parse_body(body);
  CompletionRequest fields;
  fields.max_tokens = kStandardTokens;
  completion_table(limits).read(FieldValue(json, unknown), fields);
  check_generation(fields);
  if (fields.prompts.empty()) refuse_field("prompt", "is missing");
  const std::size_t answers = fields.prompts.size() * static_cast<std::size_t>(fields.n);
  if (answers > limits.answers)
    refuse_field("n",
                 fmt::format("found {} prompts with {} answers each, expected at most {} answers",
                             fields.prompts.size(), fields.n, limits.answers));
  return fields;
}

std::vector<FieldRow> completion_request_fields(const GenerationLimits& limits) {
  return completion_table(limits).rows();
}

}  // namespace outrider

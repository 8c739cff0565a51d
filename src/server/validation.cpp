#include "server/validation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace outrider {
namespace {

void check_bias(const ServedModel& model, const std::vector<TokenBias>& bias) {
  for (const TokenBias& entry : bias)
    if (entry.token >= model.vocabulary)
      refuse_field(fmt::format("logit_bias.{}", entry.token),
                   fmt::format("no such token; the model has {}", model.vocabulary));
}

void check_drafters(const ServedModel& model,
                    const std::optional<std::vector<std::string>>& names) {
  for (const std::string& name : names.value_or(std::vector<std::string>{}))
    if (std::ranges::find(model.drafters, name) == model.drafters.end())
      refuse_field(
          "speculation.draft",
          fmt::format("no drafter \"{}\"; expected \"auto\", \"off\" or of this server's: {}",
                      printable(name, 64), fmt::join(model.drafters, ", ")));
}

}  // namespace

void check_prompt(const ServedModel& model, const std::vector<Token>& prompt,
                  const std::string& field, std::optional<int> max_tokens) {
  if (prompt.empty()) refuse_field(field, "is empty; expected at least one token");
  for (const Token token : prompt)
    if (token >= model.vocabulary)
      refuse_field(field, fmt::format("no token {}; the model has {}", token, model.vocabulary));
  const bool has_answer = max_tokens != 0;
  if (std::cmp_greater(prompt.size() + (has_answer ? 1 : 0), model.context))
    throw RequestError(
        400, "context_length_exceeded", field,
        fmt::format("the prompt has {} tokens, but this model's maximum context "
                    "length is {} tokens{}",
                    prompt.size(), model.context, has_answer ? " with the answer" : ""));
}

void check_fields(const ServedModel& model, const GenerationFields& fields) {
  check_bias(model, fields.logit_bias);
  check_drafters(model, fields.drafters);
}

}  // namespace outrider

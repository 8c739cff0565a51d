#include "server/served_model.h"

#include <fmt/format.h>

#include <algorithm>

namespace outrider {

std::string answering_name(const ServedModel& model, const std::string& asked) {
  if (asked.empty() || asked == model.name) return model.name;
  const auto has_alias = [&](const std::string& alias) {
    return std::ranges::find(model.aliases, alias) != model.aliases.end();
  };
  if (has_alias(asked) || has_alias("*")) return asked;
  throw RequestError(404, "model_not_found", "model",
                     fmt::format("model: {} is not served; {} is", in_quotes(asked), model.name));
}

}  // namespace outrider

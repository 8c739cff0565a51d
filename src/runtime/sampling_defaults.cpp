#include "runtime/sampling_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <type_traits>
#include <variant>

#include "base/bytes.h"
#include "sampling/sampling.h"

namespace outrider {

FilterSettings FilterSettings::or_else(const FilterSettings& others) const {
  FilterSettings all = *this;
  const auto fill = [&](auto FilterSettings::*filter) {
    if (!(all.*filter)) all.*filter = others.*filter;
  };
  fill(&FilterSettings::top_k);
  for (const auto filter :
       {&FilterSettings::temperature, &FilterSettings::top_p, &FilterSettings::min_p,
        &FilterSettings::typical_p, &FilterSettings::repeat_penalty,
        &FilterSettings::presence_penalty, &FilterSettings::frequency_penalty})
    fill(filter);
  return all;
}

namespace {

constexpr std::string_view kPrefix = "general.sampling.";

struct Recommended {
  std::string_view name;
  double least, most;
};
constexpr Recommended kFollowed[] = {{"temp", 0, kFilterMax},
                                     {"top_k", 0, kFilterMax},
                                     {"top_p", 0, 1},
                                     {"min_p", 0, 1},
                                     {"penalty_repeat", kRepeatPenaltyMin, kFilterMax}};
// What llama.cpp reads besides, and where it changes nothing; nothing: it has no effect by itself.
struct NotFollowed {
  std::string_view name;
  std::optional<double> without_effect;
};
constexpr NotFollowed kNotFollowed[] = {{"xtc_probability", 0}, {"xtc_threshold", {}},
                                        {"mirostat", 0},        {"mirostat_tau", {}},
                                        {"mirostat_eta", {}},   {"penalty_last_n", 64}};

// Nothing for texts and lists.
std::optional<double> number_of(const MetadataValue& value) {
  return std::visit(
      [](const auto& x) -> std::optional<double> {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(x)>>)
          return static_cast<double>(x);
        else
          return std::nullopt;
      },
      value);
}

// A value that can be followed.
std::optional<float> followed(const Recommended& row, const MetadataValue& value) {
  const std::optional<double> number = number_of(value);
  if (!number || !(*number >= row.least && *number <= row.most)) return std::nullopt;
  const auto rounded = static_cast<float>(*number);
  if (row.name == "temp" && !temperature_in_range(rounded)) return std::nullopt;
  return rounded;
}

}  // namespace

Filters filters_for(const FilterSettings& settings, const Metadata& metadata) {
  const auto from_file = [&](std::string_view name, float standard) {
    const MetadataValue* value = metadata.find(fmt::format("{}{}", kPrefix, name));
    if (value == nullptr) return standard;
    return followed(*std::ranges::find(kFollowed, name, &Recommended::name), *value)
        .value_or(standard);
  };
  const Filters standard;
  Filters filters;
  filters.temperature = settings.temperature.value_or(from_file("temp", standard.temperature));
  filters.top_k = settings.top_k.value_or(
      static_cast<int>(from_file("top_k", static_cast<float>(standard.top_k))));
  filters.top_p = settings.top_p.value_or(from_file("top_p", standard.top_p));
  filters.min_p = settings.min_p.value_or(from_file("min_p", standard.min_p));
  filters.typical_p = settings.typical_p.value_or(standard.typical_p);
  filters.repeat_penalty =
      settings.repeat_penalty.value_or(from_file("penalty_repeat", standard.repeat_penalty));
  filters.presence_penalty = settings.presence_penalty.value_or(standard.presence_penalty);
  filters.frequency_penalty = settings.frequency_penalty.value_or(standard.frequency_penalty);
  return filters;
}

std::vector<std::string> sampling_warnings(const Metadata& metadata) {
  std::vector<std::string> lines;
  for (const auto& [key, value] : metadata.entries()) {
    if (!key.starts_with(kPrefix)) continue;
    const std::string_view name = std::string_view(key).substr(kPrefix.size());
    const auto* row = std::ranges::find(kFollowed, name, &Recommended::name);
    const auto* other = std::ranges::find(kNotFollowed, name, &NotFollowed::name);
    if (row != std::end(kFollowed)) {
      if (!followed(*row, value))
        lines.push_back(fmt::format("{}: {} is no number from {:g} to {:g}: it is ignored",
                                    metadata.origin(), key, row->least, row->most));
    } else if (other == std::end(kNotFollowed) ||
               (other->without_effect && number_of(value) != other->without_effect)) {
      lines.push_back(fmt::format("{}: {} recommends what this version does not do: it is ignored",
                                  metadata.origin(), printable(key)));
    }
  }
  return lines;
}

}  // namespace outrider

#include "formats/known_pairs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"
#include "base/numbers.h"

namespace outrider {

extern const char kPairsJson[];  // built from assets/pairs.json

namespace {

using Json = nlohmann::json;

// Empty if the key is missing or holds something else.
std::string text_at(const Metadata& metadata, std::string_view key) {
  const MetadataValue* value = metadata.find(key);
  const auto* text = value ? std::get_if<std::string>(value) : nullptr;
  return text ? *text : "";
}

std::int64_t size_at(const Metadata& metadata, const std::string& key) {
  const MetadataValue* value = metadata.find(key);
  const auto* number = value ? std::get_if<std::int64_t>(value) : nullptr;
  return number ? *number : 0;
}

std::string letters_and_digits(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) kept += c;
    if (c >= 'A' && c <= 'Z') kept += static_cast<char>(c - 'A' + 'a');
  }
  return kept;
}

bool has_marks(const Metadata& metadata, const std::vector<ModelSeries::Mark>& marks) {
  if (marks.empty()) return true;
  const MetadataValue* value = metadata.find("tokenizer.ggml.tokens");
  const auto* tokens = value ? std::get_if<std::vector<std::string>>(value) : nullptr;
  return tokens && std::ranges::all_of(marks, [&](const ModelSeries::Mark& mark) {
           return mark.token < tokens->size() && (*tokens)[mark.token] == mark.text;
         });
}

bool belongs(const Metadata& metadata, const ModelSeries& series) {
  const auto is_named = [&](std::string_view key) {
    return letters_and_digits(text_at(metadata, key)).find(series.named) != std::string::npos;
  };
  return text_at(metadata, "general.architecture") == series.architecture &&
         (series.pre.empty() || text_at(metadata, "tokenizer.ggml.pre") == series.pre) &&
         (is_named("general.basename") || is_named("general.name")) &&
         has_marks(metadata, series.marks);
}

bool is_repository(std::string_view name) {
  const std::size_t slash = name.find('/');
  return slash != name.npos && slash > 0 && slash + 1 < name.size() &&
         name.find('/', slash + 1) == name.npos && name.find(' ') == name.npos;
}

KnownModel parse_model(const Json& json) {
  KnownModel model{.name = json.at("name").get<std::string>(),
                   .layers = json.at("layers").get<std::int64_t>(),
                   .embedding = json.at("embedding").get<std::int64_t>(),
                   .drafts = json.at("drafts").get<std::vector<std::string>>(),
                   .heads = json.value("heads", std::vector<std::string>())};
  constexpr std::int64_t kSizeMax = 1 << 20;
  for (const std::int64_t size : {model.layers, model.embedding})
    if (size < 1 || size > kSizeMax)
      throw Error("{}: a size is {}, expected 1 to {}", model.name, size, kSizeMax);
  for (const std::string& head : model.heads)
    if (!is_repository(head))
      throw Error("{}: its head is \"{}\", expected OWNER/NAME", model.name, printable(head));
  return model;
}

ModelSeries parse_one(const Json& json) {
  ModelSeries series{.architecture = json.at("architecture").get<std::string>(),
                     .pre = json.value("pre", ""),
                     .named = json.value("named", ""),
                     .marks = {},
                     .models = {}};
  if (json.contains("tokens")) {
    for (const auto& [token, text] : json.at("tokens").items()) {
      const auto id = parse_number<std::size_t>(token);
      if (!id) throw Error("token \"{}\" is no number", printable(token));
      series.marks.push_back({*id, text.get<std::string>()});
    }
  }
  for (const Json& model : json.at("models")) series.models.push_back(parse_model(model));
  // A pass reads about layers * embedding^2 weights.
  const auto size = [](const KnownModel& model) {
    return model.layers * model.embedding * model.embedding;
  };
  for (const KnownModel& model : series.models) {
    for (const std::string& name : model.drafts) {
      const auto draft = std::ranges::find(series.models, name, &KnownModel::name);
      if (draft == series.models.end())
        throw Error("{}: its draft {} is not in the series", model.name, name);
      if (size(*draft) >= size(model))
        throw Error("{}: its draft {} is no smaller", model.name, name);
    }
  }
  return series;
}

}  // namespace

std::vector<ModelSeries> parse_model_series(std::string_view json, std::string_view origin) {
  try {
    std::vector<ModelSeries> all;
    const Json parsed = Json::parse(json);
    for (const Json& series : parsed.at("series")) all.push_back(parse_one(series));
    return all;
  } catch (const Json::exception& error) {
    throw Error("{}: {}", origin, printable(error.what(), 200));
  } catch (const Error& error) {
    throw Error("{}: {}", origin, error.what());
  }
}

std::span<const ModelSeries> model_series() {
  static const std::vector<ModelSeries> all = parse_model_series(kPairsJson, "assets/pairs.json");
  return all;
}

const KnownModel* known_model(const Metadata& metadata) {
  for (const ModelSeries& series : model_series()) {
    if (!belongs(metadata, series)) continue;
    const std::int64_t layers = size_at(metadata, series.architecture + ".block_count");
    const std::int64_t embedding = size_at(metadata, series.architecture + ".embedding_length");
    for (const KnownModel& model : series.models)
      if (model.layers == layers && model.embedding == embedding) return &model;
    return nullptr;
  }
  return nullptr;
}

bool is_known_pair(const KnownModel* target, const KnownModel* draft) {
  return target && draft && std::ranges::count(target->drafts, draft->name) > 0;
}

}  // namespace outrider

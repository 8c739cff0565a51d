#include "model/made_for.h"

#include <algorithm>
#include <filesystem>

#include "base/bytes.h"
#include "base/error.h"
#include "model/head_config.h"

namespace outrider {
namespace {

constexpr const char* kObject = "outrider";
constexpr int kSizeMax = 1 << 24;

std::string config_beside(const std::string& weights) {
  return (std::filesystem::path(weights).parent_path() / "config.json").string();
}

HeadConfig required_object(const HeadConfig& config, std::string_view key) {
  auto object = config.object(key);
  if (!object) throw Error("{}: {} is missing", config.origin(), config.name(key));
  return std::move(*object);
}

std::string required_text(const HeadConfig& config, std::string_view key) {
  auto text = config.text(key);
  if (!text) throw Error("{}: {} is missing", config.origin(), config.name(key));
  return std::move(*text);
}

std::string required_hash(const HeadConfig& config, std::string_view key) {
  constexpr std::size_t kDigits = 64;
  std::string hash = required_text(config, key);
  if (hash.size() != kDigits || hash.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw Error("{}: {} is \"{}\", expected 64 hexadecimal digits in lower case", config.origin(),
                config.name(key), printable(hash));
  return hash;
}

}  // namespace

std::optional<MadeFor> read_made_for(const nlohmann::json& config, const std::string& weights) {
  if (!config.is_object()) return {};
  const auto object = HeadConfig(config, config_beside(weights)).object(kObject);
  if (!object) return {};
  const HeadConfig target = required_object(*object, "target");
  MadeFor made_for{.name = required_text(target, "name"),
                   .file = required_hash(target, "file"),
                   .vocabulary = required_hash(target, "vocabulary"),
                   .embedding = target.required_integer("embedding", 1, kSizeMax),
                   .n_layers = target.required_integer("layers", 1, kSizeMax),
                   .vocabulary_size = target.required_integer("vocabulary_size", 1, kSizeMax)};
  constexpr int kFirstRowMax = 2;
  made_for.first_row = object->integer("first_row", 1, kFirstRowMax).value_or(1);
  if (const auto agreement = object->object("agreement")) {
    const int places = agreement->required_integer("places", 1, kSizeMax);
    made_for.agreement = {.right = agreement->required_integer("right", 0, places),
                          .places = places};
    made_for.type = agreement->text("type").value_or("");
  }
  return made_for;
}

void check_shape(const MadeFor& made_for, const std::string& weights, const Model& target) {
  const ModelSpec& spec = target.spec;
  if (spec.n_layers() == made_for.n_layers && spec.embedding == made_for.embedding &&
      spec.vocabulary == made_for.vocabulary_size)
    return;
  throw Error(
      "{}: the head was made for {}, which has {} layers of width {} and {} tokens, but {} has {} "
      "of {} and {} tokens",
      config_beside(weights), printable(made_for.name), made_for.n_layers, made_for.embedding,
      made_for.vocabulary_size, target.checkpoint->metadata.origin(), spec.n_layers(),
      spec.embedding, spec.vocabulary);
}

}  // namespace outrider

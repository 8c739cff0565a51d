#include "runtime/head_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/config_file.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "text/vocabulary_fingerprint.h"

namespace outrider {
namespace {

bool is_gguf(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> magic{};
  return file.read(magic.data(), magic.size()) && std::string_view(magic.data(), 4) == "GGUF";
}

}  // namespace

bool names_head(std::string_view name) {
  const std::filesystem::path path(name);
  std::error_code error;
  if (name.empty() || !std::filesystem::exists(path, error)) return false;
  if (std::filesystem::is_directory(path, error)) return true;
  if (!is_gguf(path)) {
    constexpr std::string_view kExtensions[] = {".safetensors", ".json", ".bin", ".pt", ".pth"};
    return std::ranges::find(kExtensions, path.extension().string()) != std::end(kExtensions);
  }
  try {
    return is_head(read_gguf(path));
  } catch (const Error&) {
    return false;
  }
}

std::string_view head_kind(std::string_view name) {
  if (!names_head(name)) return {};
  const std::filesystem::path path(name);
  try {
    return drafter_of_head(is_gguf(path) ? read_gguf(path) : read_safetensors(path));
  } catch (const Error&) {
    // open_head() says what is wrong.
  }
  return "eagle";
}

Head open_head(const std::string& name, const Model& target) {
  const std::filesystem::path path(name);
  if (is_gguf(path)) {
    auto gguf = name == target.checkpoint->path
                    ? target.checkpoint
                    : std::make_shared<const Checkpoint>(read_gguf(path));
    if (!is_head(*gguf) && !has_prediction_layer(*gguf))
      throw Error("{}: is a model, no learned head; a draft model is asked for by model={}", name,
                  name);
    return interpret_head(std::move(gguf), {}, target);
  }
  auto checkpoint = std::make_shared<Checkpoint>(read_safetensors(path));
  const auto config = read_config(path);
  return interpret_head(std::move(checkpoint), config.value_or(nlohmann::json()), target);
}

Head open_head(const std::string& name, const OpenedModel& target) {
  Head head = open_head(name, target.model);
  if (!head.made_for) return head;
  const std::string found = hex_of(vocabulary_fingerprint(*target.tokenizer));
  constexpr std::size_t kShown = 12;  // digits
  if (found != head.made_for->vocabulary)
    throw Error(
        "{}: the head was made for {} with the vocabulary {}..., but that of {} is {}...: its "
        "tokens mean something else",
        name, printable(head.made_for->name), head.made_for->vocabulary.substr(0, kShown),
        target.name, found.substr(0, kShown));
  return head;
}

}  // namespace outrider

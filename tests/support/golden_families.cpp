#include "support/golden_families.h"

#include <algorithm>
#include <filesystem>

#include "formats/gguf.h"
#include "numerics/dequantize.h"

namespace outrider::testing {
namespace {

constexpr const char* kFamilies = OUTRIDER_GOLDEN_DIR "/families";

std::shared_ptr<const Checkpoint> open(const std::string& name, const char* file) {
  return std::make_shared<const Checkpoint>(
      read_gguf(std::filesystem::path(kFamilies) / name / file));
}

}  // namespace

std::vector<std::string> golden_families() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFamilies))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

Model golden_model(const std::string& name) {
  return interpret_checkpoint(open(name, "model.gguf"));
}

GoldenTexts golden_texts(const std::string& name) {
  const std::shared_ptr<const Checkpoint> file = open(name, "expected.gguf");
  const auto values = [&](const char* tensor_name) {
    const TensorView& tensor = *file->find(tensor_name);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    dequantize(tensor.type, tensor.bytes, values);
    return values;
  };
  const auto& shape = file->find("tokens")->shape;
  return {.length = static_cast<std::size_t>(shape[0]),
          .n_texts = static_cast<std::size_t>(shape[1]),
          .n_best = static_cast<std::size_t>(file->find("best")->shape[0]),
          .tokens = values("tokens"),
          .best = values("best"),
          .log_probabilities = values("log_probabilities")};
}

}  // namespace outrider::testing

// Any bytes are a head for a target, of which every tensor lies in memory and has its shape, or an
// Error of one line. The input: two bytes with the length of config.json, that text, a file in
// safetensors or, told by its first bytes, GGUF.

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/parse_json.h"
#include "formats/safetensors.h"
#include "model/small_head_test.h"
#include "numerics/dequantize.h"

namespace outrider {
namespace {

void check_head(const Head& head, const Model& target) {
  const ModelSpec& spec = head.model.spec;
  CHECK(spec.eagle.has_value() + spec.medusa.has_value() + spec.block.has_value() == 1);
  CHECK(!spec.layers.empty() && spec.vocabulary == target.spec.vocabulary);
  CHECK(head.model.weights.size() == spec.layers.size() * kRoles);
  if (const auto& block = spec.block) {
    CHECK(block->mask >= 0 && block->mask < spec.vocabulary);
    CHECK(block->n_rows >= 2 && block->successor_rank <= spec.embedding);
  }
  if (!spec.medusa) {
    for (const int tap : taps_of(spec, target.spec))
      CHECK(tap >= -1 && tap <= target.spec.n_layers());
    for (const double frequency : attention_of(spec.layers[0])->rope->frequencies)
      CHECK(frequency >= 0 && frequency <= 1.5);
  }
  std::vector<Token> tokens = head.output_tokens;
  std::ranges::sort(tokens);
  CHECK(std::ranges::adjacent_find(tokens) == tokens.end());
  CHECK(tokens.empty() || (tokens.front() >= 0 && tokens.back() < target.spec.vocabulary));
  const std::int64_t rows = tokens.empty() ? target.spec.vocabulary : std::ssize(tokens);
  CHECK(head.model.weight(Role::output)->rows() == rows);
  for (const TensorView* tensor : head.model.weights) {
    if (!tensor) continue;
    std::vector<float> values(static_cast<std::size_t>(tensor->elements()));
    dequantize(tensor->type, tensor->bytes, values);
    CHECK(!values.empty());
  }
}

}  // namespace
}  // namespace outrider

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace outrider;
  static const Model target = small_target();
  if (size < 2) return 0;
  const std::size_t length = std::min<std::size_t>(data[0] + 256 * data[1], size - 2);
  const std::string_view config(reinterpret_cast<const char*>(data + 2), length);
  const auto input = std::as_bytes(std::span(data, size)).subspan(2 + length);
  // Aligned as a mapped file is.
  const std::vector<std::byte> file(input.begin(), input.end());
  const bool is_gguf = file.size() >= 4 && std::memcmp(file.data(), "GGUF", 4) == 0;
  try {
    const auto checkpoint = std::make_shared<Checkpoint>(is_gguf ? read_gguf(file, "fuzz")
                                                                 : read_safetensors(file, "fuzz"));
    if (is_gguf && !is_head(*checkpoint) && !has_prediction_layer(*checkpoint)) return 0;
    check_head(interpret_head(checkpoint, parse_json(config, "config.json"), target), target);
  } catch (const Error& error) {
    CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}

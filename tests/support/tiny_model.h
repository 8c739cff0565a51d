// Models for tests: small random ones of every family, with real tensor types and peaked logits,
// and real ones of the cache.

#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/tensor_type.h"
#include "model/model.h"

namespace outrider::testing {

struct TinyOptions {
  std::string family = "llama";  // llama, qwen2, gemma3
  std::uint64_t seed = 1;        // of the weights
  std::vector<TensorType> types = {TensorType::q4_k,
                                   TensorType::q6_k};  // matrices take them in turn
  int n_layers = 3;
  int embedding = 256;  // a multiple of every type's block
  // Channels of a head's keys and of its values; nothing: both a quarter of the embedding, or 32
  // where that is below 256.
  std::optional<int> key_dim = {}, value_dim = {};
  int vocabulary = 277;  // 256 bytes and special tokens; no multiple of a panel
  bool tied_output = true;
  double perturbation =
      0;  // relative change of every block's scale: a draft model that is often right
};

// The file as bytes.
std::vector<std::byte> tiny_gguf(const TinyOptions& options);
// Ready to load.
Model tiny_model(const TinyOptions& options);

// A real file with every block's scale changed by some `relative` of itself: a draft model that is
// often right, but not always.
Model perturbed_copy(const std::filesystem::path& path, double relative);

// A model of the cache that $OUTRIDER_CACHE names, by file name ("smollm2-135m.gguf"); nothing if
// it is missing.
std::optional<std::filesystem::path> cached_model(const std::string& file);

}  // namespace outrider::testing

// Small random heads for small targets.

#pragma once

#include <cstdint>
#include <optional>

#include "model/backend.h"
#include "model/head.h"

namespace outrider::testing {

struct TinyHeadOptions {
  std::uint64_t seed = 1;
  int n_layers = 1;
  std::vector<int> taps = {0, 1, 2};  // outputs of the target's layers
  int rows = 100;                     // of the output matrix; 0: the target's outputs
  bool norm_before_residual = false;
  bool norm_output = false;  // the normed state goes on
  TensorType type = TensorType::f16;
};

// In the layout of speculators, from memory. What it reads of the target stays alive with it.
Head tiny_head(const Model& target, const TinyHeadOptions& options = {});
// The same as eagle= loads it, with weights as they are.
std::shared_ptr<const HeadToLoad> tiny_head_to_load(const Model& target,
                                                    const TinyHeadOptions& options = {});
// A head of EAGLE in the layout of SafeAILab.
std::shared_ptr<const HeadToLoad> tiny_eagle1_to_load(const Model& target);
// A layer for multi-token prediction in the layout of Qwen: a gate at the attention, rope over a
// quarter of the channels.
std::shared_ptr<const HeadToLoad> tiny_mtp_to_load(const Model& target);
struct TinyBlockOptions {
  int rank = 0;                    // of its Markov head, which comes with a confidence; 0: none
  bool remembers = false;          // the Markov head has a memory
  std::optional<int> window = {};  // of its first layer, whose rows then see no later one
  bool has_confidence = false;     // also without a Markov head
};
// A head of blocks in the layout of DeepSpec, with outputs of its own.
std::shared_ptr<const HeadToLoad> tiny_block_to_load(const Model& target,
                                                     const TinyBlockOptions& options = {});
// Medusa's heads in the layout of FasterDecoding.
std::shared_ptr<const HeadToLoad> tiny_medusa_to_load(const Model& target, int n_heads = 3);

}  // namespace outrider::testing

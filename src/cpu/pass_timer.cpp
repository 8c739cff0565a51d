#include "cpu/pass_timer.h"

#include <optional>
#include <span>

#include "base/processor.h"

namespace outrider {
namespace {

constexpr std::string_view kNames[kPassParts] = {
    "plan",
    "features",
    "attention: add, norm, quantize",
    "q, k, v",
    "rope, store",
    "attention",
    "output: quantize",
    "output",
    "mlp: add, norm, quantize",
    "gate, up",
    "activate, quantize",
    "down",
    "head: add, norm, quantize",
    "head",
};

// The product that a matrix takes part in; nothing for other tensors.
std::optional<PassPart> part_of(Role role) {
  switch (role) {
    case Role::attention_q:
    case Role::attention_k:
    case Role::attention_v:
    case Role::attention_gate: return PassPart::qkv;
    case Role::attention_output: return PassPart::attention_out;
    case Role::mlp_gate:
    case Role::mlp_up: return PassPart::gate_up;
    case Role::mlp_down: return PassPart::down;
    case Role::feature_fusion:
    case Role::successor_gate:
    case Role::medusa_block: return PassPart::features;
    default: return {};
  }
}

// The weights that a pass multiplies by, as they are loaded.
void count_weights(const Weights& weights, std::span<PassProfile::Operation> operations) {
  for (PassProfile::Operation& operation : operations)
    operation.weights = operation.weight_bytes = 0;
  const auto add = [&](PassPart part, const PackedMatrix& matrix) {
    PassProfile::Operation& operation = operations[static_cast<std::size_t>(part)];
    const TensorTypeTraits& type = traits(matrix.type);
    const double n = static_cast<double>(matrix.outputs * matrix.columns);
    operation.weights += n;
    operation.weight_bytes +=
        n * static_cast<double>(type.block_bytes) / static_cast<double>(type.block_elements);
  };
  for (int layer = 0; layer < weights.n_layers(); ++layer) {
    for (int role = 0; role < kRoles; ++role) {
      if (weights.matrix(static_cast<Role>(role), layer).outputs == 0) continue;
      if (const auto part = part_of(static_cast<Role>(role)))
        add(*part, weights.matrix(static_cast<Role>(role), layer));
    }
  }
  for (std::size_t head = 0; head < weights.n_heads(); ++head)
    add(PassPart::head, weights.head(head));
}

}  // namespace

PassTimer::PassTimer(PassProfile* profile, int n_threads, const Weights& weights)
    : profile_(profile), weights_(weights) {
  if (profile_ == nullptr) return;
  threads_.resize(static_cast<std::size_t>(n_threads));
  profile_->operations.resize(kPassParts);
  start_ = std::chrono::steady_clock::now();
  first_ = ticks();
  for (Thread& thread : threads_) thread.last = first_;
}

void PassTimer::finish() {
  if (profile_ == nullptr) return;
  // The counter's rate is taken from this pass.
  const std::uint64_t last = ticks(), taken = last - first_;
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start_;
  const double ms_a_tick =
      ms.count() / static_cast<double>(taken) / static_cast<double>(threads_.size());
  for (Thread& thread : threads_) thread.parts.back().wait += last - thread.last;
  for (int part = 0; part < kPassParts; ++part) {
    PassProfile::Operation& operation = profile_->operations[static_cast<std::size_t>(part)];
    operation.name = kNames[part];
    for (const Thread& thread : threads_) {
      const Times& times = thread.parts[static_cast<std::size_t>(part)];
      operation.work_ms += static_cast<double>(times.work) * ms_a_tick;
      operation.wait_ms += static_cast<double>(times.wait) * ms_a_tick;
    }
  }
  count_weights(weights_, profile_->operations);
  ++profile_->passes;
}

void PassTimer::charge(Thread& thread, PassPart part, std::uint64_t Times::*kind) {
  const std::uint64_t now = ticks();
  thread.parts[static_cast<std::size_t>(part)].*kind += now - thread.last;
  thread.last = now;
}

}  // namespace outrider

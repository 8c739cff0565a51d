#include "cpu/pass_timer.h"

#include <x86intrin.h>

#include <optional>

namespace outrider {
namespace {

constexpr std::string_view kNames[kPassParts] = {
    "plan",      "attention: add, norm, quantize",
    "q, k, v",   "rope, store",
    "attention", "output: quantize",
    "output",    "mlp: add, norm, quantize",
    "gate, up",  "activate, quantize",
    "down",      "head: add, norm, quantize",
    "head",
};

// The product that a matrix takes part in; nothing for other tensors.
std::optional<PassPart> part_of(Role role) {
  switch (role) {
    case Role::attention_q:
    case Role::attention_k:
    case Role::attention_v: return PassPart::qkv;
    case Role::attention_output: return PassPart::attention_out;
    case Role::mlp_gate:
    case Role::mlp_up: return PassPart::gate_up;
    case Role::mlp_down: return PassPart::down;
    default: return {};
  }
}

}  // namespace

PassWeights pass_weights(const Model& model) {
  PassWeights weights;
  const auto add = [&](PassPart part, const TensorView& tensor) {
    PartWeights& of_part = weights[static_cast<std::size_t>(part)];
    of_part.bytes += static_cast<double>(tensor.bytes.size());
    of_part.count += static_cast<double>(tensor.elements());
  };
  for (int layer = 0; layer < model.spec.n_layers(); ++layer) {
    for (int role = 0; role < kRoles; ++role) {
      const TensorView* tensor = model.weights[layer * kRoles + role];
      const auto part = part_of(static_cast<Role>(role));
      if (tensor != nullptr && part) add(*part, *tensor);
    }
  }
  const TensorView* output = model.weight(Role::output);
  add(PassPart::head, output != nullptr ? *output : *model.weight(Role::token_embedding));
  return weights;
}

PassTimer::PassTimer(PassProfile* profile, int n_threads, const PassWeights& weights)
    : profile_(profile), weights_(weights) {
  if (profile_ == nullptr) return;
  threads_.resize(static_cast<std::size_t>(n_threads));
  start_ = std::chrono::steady_clock::now();
  first_ = __rdtsc();
  for (Thread& thread : threads_) thread.last = first_;
}

PassTimer::~PassTimer() {
  if (profile_ == nullptr) return;
  // The counter's rate is what it did during this pass.
  const std::uint64_t last = __rdtsc(), ticks = last - first_;
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start_;
  const double ms_a_tick =
      ms.count() / static_cast<double>(ticks) / static_cast<double>(threads_.size());
  for (Thread& thread : threads_) thread.parts.back().wait += last - thread.last;
  profile_->operations.resize(kPassParts);
  for (int part = 0; part < kPassParts; ++part) {
    PassProfile::Operation& operation = profile_->operations[static_cast<std::size_t>(part)];
    operation.name = kNames[part];
    operation.weight_bytes = weights_[static_cast<std::size_t>(part)].bytes;
    operation.weights = weights_[static_cast<std::size_t>(part)].count;
    for (const Thread& thread : threads_) {
      const Times& times = thread.parts[static_cast<std::size_t>(part)];
      operation.work_ms += static_cast<double>(times.work) * ms_a_tick;
      operation.wait_ms += static_cast<double>(times.wait) * ms_a_tick;
    }
  }
  ++profile_->passes;
}

void PassTimer::charge(Thread& thread, PassPart part, std::uint64_t Times::*kind) {
  const std::uint64_t now = __rdtsc();
  thread.parts[static_cast<std::size_t>(part)].*kind += now - thread.last;
  thread.last = now;
}

}  // namespace outrider

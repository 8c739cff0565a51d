#include "cpu/pass_timer.h"

#include <x86intrin.h>

namespace outrider {
namespace {

constexpr std::string_view kNames[kPassParts] = {
    "plan",
    "embed",
    "attention: norm, quantize",
    "qkv",
    "rope, store",
    "attention",
    "output: quantize",
    "output",
    "mlp: norm, quantize",
    "gate, up",
    "activation",
    "down: quantize",
    "down",
    "residual",
    "head: norm, quantize",
    "head",
};

}  // namespace

PassTimer::PassTimer(PassProfile* profile, int n_threads) : profile_(profile) {
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

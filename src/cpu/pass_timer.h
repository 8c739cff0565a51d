// Measures what each thread does in a pass, by the processor's time stamp counter. It costs about
// 20 ns for each change of operation, and nothing if nobody asked for it.

#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "cpu/weights.h"
#include "model/pass_profile.h"

namespace outrider {

// In the order of a pass.
enum class PassPart {
  plan,          // bookkeeping of cache and rows, waking the threads
  features,      // of a head: norm, quantization and product
  attention_in,  // embedding or residual, norm, quantization
  qkv,           // products
  heads,         // bias, head norms, rope, storing keys and values
  attention,
  attention_out_in,  // quantization
  attention_out,     // product
  mlp_in,            // residual, norm, quantization
  gate_up,           // products
  activation,        // and quantization
  down,              // product
  head_in,           // residual, norm, quantization
  head,              // product
};
inline constexpr int kPassParts = static_cast<int>(PassPart::head) + 1;

// Lives from the beginning of a pass to its end. Each thread reports for itself.
class PassTimer {
 public:
  // Nothing is measured if `profile` is null. weights: those of the pass; they must outlive this
  // object.
  PassTimer(PassProfile* profile, int n_threads, const Weights& weights);
  PassTimer(const PassTimer&) = delete;
  PassTimer& operator=(const PassTimer&) = delete;

  // Adds the pass, which is complete, to `profile`. Allocates nothing.
  void finish();

  // `thread` spent the time since its last report, or since the pass began, on `part`: on its work,
  // or waiting for other threads after it.
  void worked(int thread, PassPart part) {
    if (profile_ != nullptr) charge(threads_[thread], part, &Times::work);
  }
  void waited(int thread, PassPart part) {
    if (profile_ != nullptr) charge(threads_[thread], part, &Times::wait);
  }

 private:
  struct Times {
    std::uint64_t work = 0, wait = 0;  // ticks
  };
  struct alignas(64) Thread {
    std::uint64_t last = 0;
    std::array<Times, kPassParts> parts;
  };
  static void charge(Thread& thread, PassPart part, std::uint64_t Times::*kind);

  PassProfile* const profile_;
  const Weights& weights_;
  std::vector<Thread> threads_;
  std::uint64_t first_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace outrider

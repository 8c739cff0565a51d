// Measures what this machine can do at best (base/limits.h).

#pragma once

#include <memory>

#include "base/limits.h"

namespace outrider {

// Its threads and 512 MiB of memory are ready between measurements, so that these can alternate
// with what they are compared to: on a shared machine the limits move within seconds.
class LimitMeter {
 public:
  // Throws Error if the system has no room for the threads or the memory.
  explicit LimitMeter(int n_threads);
  ~LimitMeter();
  LimitMeter(const LimitMeter&) = delete;
  LimitMeter& operator=(const LimitMeter&) = delete;

  // With the first n_threads of its threads: reads all the memory once in each pattern, the
  // patterns always the same and in one order, and computes for some milliseconds. Half a second at
  // 10 GB/s.
  Limits measure(int n_threads);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace outrider

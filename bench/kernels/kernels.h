// outrider-bench kernels: the time of every kernel by type, rows and instruction set, also as a
// share of what this machine can do at best, which is measured in the same run.

#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "base/machine_limits.h"
#include "base/threads.h"
#include "cpu/isa.h"

namespace outrider {

struct KernelBench {
  ThreadTeam& team;
  const MachineLimits& limits;  // of the whole team
  std::size_t stream_bytes;     // of weights or keys to walk through, more than the caches hold

  double read_gbs() const;          // of the best pattern
  double int8_tops(Isa isa) const;  // of what multiplies integers there; 0: no limit known
};

// What an iteration of a kernel does, for all threads together.
struct Work {
  double bytes = 0;       // read from memory
  double operations = 0;  // two a multiply-add
  double tera = 0;        // the limit that operations are held against; 0: none
};

// Runs on every thread of the team; an iteration ends when all have returned.
using KernelBody = std::function<void(int thread, std::size_t iteration)>;

// Registers a benchmark. `prepare` makes what it works on, outside its time.
void add_kernel(const KernelBench& bench, std::string name, Work work,
                std::function<KernelBody()> prepare);

void add_products(const KernelBench& bench);
void add_attention(const KernelBench& bench);
void add_vectors(const KernelBench& bench);
void add_choice(const KernelBench& bench);

}  // namespace outrider

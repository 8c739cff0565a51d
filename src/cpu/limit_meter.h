// Measures what this machine can do at best (base/machine_limits.h).

#pragma once

#include <memory>

#include "base/machine_limits.h"

namespace outrider {

// A measurement reads 512 MiB in each pattern; all patterns together take half a second at 10 GB/s.
// Throws Error if the system cannot give the threads or the memory.
std::unique_ptr<LimitMeter> make_limit_meter(int n_threads);

}  // namespace outrider

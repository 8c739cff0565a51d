// Where the time of passes went. A forward pass fills it in if it is asked to (ForwardOptions).

#pragma once

#include <string_view>
#include <vector>

namespace outrider {

struct PassProfile {
  // One kind of work in a pass, by the device's own name for it, summed over all layers.
  struct Operation {
    std::string_view name;  // lives as long as the program
    // Of all passes, the mean over the device's threads: until a thread has done its work, and from
    // then until all threads have.
    double work_ms = 0, wait_ms = 0;
    // The matrices that one pass over all layers multiplies by here, as they are loaded: bytes,
    // without what packing adds, so as in the file unless they were encoded in another type; and
    // elements.
    double weight_bytes = 0, weights = 0;
  };
  std::vector<Operation> operations;  // in the order of a pass; their times add up to the passes'
  int passes = 0;                     // how many were added
};

}  // namespace outrider

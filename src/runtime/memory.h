// How much memory there is, and the longest context that fits into it.

#pragma once

#include <cstdint>
#include <functional>

namespace outrider {

// Bytes that plans may use: available_memory_bytes() (base/machine.h) less a margin for what they
// do not count.
std::uint64_t plannable_memory_bytes();

// The longest context, a multiple of a page of the cache and at most `most`, for which `need` says
// at most `available` bytes; 0 if not even the shortest fits. need(context) grows with the context.
int context_that_fits(const std::function<std::uint64_t(int context)>& need, int most,
                      std::uint64_t available);

}  // namespace outrider

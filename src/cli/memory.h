// How much memory there is, and the longest context that fits into it.

#pragma once

#include <cstdint>

#include "cli/commands.h"

namespace outrider {

// Bytes that this process may still take: free and reclaimable memory of the machine, the limits of
// its control groups and its address space, less a margin.
std::uint64_t available_memory();

// The longest context, a multiple of a page of the cache and at most `most`, with which the model
// needs no more than `available` bytes; 0 if not even the shortest fits.
int context_that_fits(const Device& device, const Model& model, LoadOptions options, int most,
                      std::uint64_t available);

}  // namespace outrider

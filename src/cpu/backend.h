// The CPU's side of model/backend.h.

#pragma once

#include <memory>

#include "cpu/isa.h"
#include "model/backend.h"

namespace outrider {

// Packs the model's weights (its checkpoint stays alive with the backend) and plans the cache.
// Kernels are those of chosen_isa(). Throws as BackendFactory::load() does.
std::unique_ptr<Backend> load_cpu(const Model& model, const LoadOptions& options,
                                  const LoadProgress& progress = {});

// The same with the kernels of one instruction set, one of available_isas().
std::unique_ptr<Backend> load_cpu(const Model& model, const LoadOptions& options, Isa isa,
                                  const LoadProgress& progress = {});

// The bytes that a load will take, for planning.
MemoryNeed memory_need(const Model& model, const LoadOptions& options);

// Both of these for this machine's processors, with the kernels of chosen_isa().
const BackendFactory& cpu_backends();

}  // namespace outrider

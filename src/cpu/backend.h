// The CPU's side of model/backend.h.

#pragma once

#include <memory>

#include "cpu/isa.h"
#include "model/backend.h"

namespace outrider {

// Packs the model's weights (its checkpoint stays alive with the backend) and plans the cache.
// isa: one of available_isas(). Throws as BackendFactory::load() does.
std::unique_ptr<Backend> load_cpu(const Model& model, const LoadOptions& options,
                                  Isa isa = chosen_isa(), const LoadProgress& progress = {});

// Backends on this machine's processors, with the kernels of chosen_isa().
const BackendFactory& cpu_backends();

}  // namespace outrider

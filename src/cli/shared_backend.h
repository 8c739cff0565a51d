// One loaded model under several owners: settings that are compared share the weights.

#pragma once

#include <memory>

#include "model/backend.h"

namespace outrider {

// Forwards everything. Owners together may have as many sequences as the backend was loaded for,
// and must not count on a pass across another owner's forward.
std::unique_ptr<Backend> share_backend(std::shared_ptr<Backend> backend);

}  // namespace outrider

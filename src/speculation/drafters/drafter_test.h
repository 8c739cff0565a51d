// What tests of drafters share.

#pragma once

#include "speculation/drafter.h"

namespace outrider {

inline const SamplingParams kGreedy;
inline const ProcessorState kState(kGreedy);

}  // namespace outrider

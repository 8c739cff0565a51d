// What tests of drafters share.

#pragma once

#include "speculation/drafter.h"

namespace outrider {

inline const SamplingParams kGreedy;
inline const ChoiceState kState(kGreedy);

}  // namespace outrider

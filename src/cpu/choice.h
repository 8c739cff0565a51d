// The fast twin of numerics/choice.h: the same bits.

#pragma once

#include <span>

#include "cpu/isa.h"
#include "numerics/choice.h"

namespace outrider {

Choice choose(std::span<const float> logits, const ChoiceRequest& request, Isa isa);

}  // namespace outrider

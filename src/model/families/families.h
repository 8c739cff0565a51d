#pragma once

#include "model/family.h"

namespace outrider {

Family llama_family();
Family qwen2_family();
Family gemma3_family();

}  // namespace outrider

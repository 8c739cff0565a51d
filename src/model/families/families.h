#pragma once

#include "model/family.h"

namespace outrider {

Family chatglm_family();
Family cohere2_family();
Family command_r_family();
Family gemma2_family();
Family gemma3_family();
Family glm4_family();
Family granite_family();
Family llama_family();
Family mistral3_family();
Family olmo2_family();
Family phi3_family();
Family qwen2_family();
Family qwen3_family();
Family smollm3_family();
Family starcoder2_family();

}  // namespace outrider

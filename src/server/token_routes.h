// llama-server's and vLLM's routes about tokens and prompts: /tokenize, /detokenize,
// /apply-template.

#pragma once

#include <memory>
#include <vector>

#include "http/http.h"
#include "server/served_model.h"

namespace outrider {

std::vector<HttpRoute> token_routes(std::shared_ptr<const ServedModel> model);

}  // namespace outrider

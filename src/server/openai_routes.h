// OpenAI's API: /v1/chat/completions, /v1/completions, /v1/models.

#pragma once

#include <memory>
#include <vector>

#include "http/http.h"
#include "server/served_model.h"

namespace outrider {

std::vector<HttpRoute> openai_routes(std::shared_ptr<const ServedModel> model);

}  // namespace outrider

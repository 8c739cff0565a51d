// Anthropic's API: /v1/messages, /v1/messages/count_tokens.

#pragma once

#include <memory>
#include <vector>

#include "http/http.h"
#include "server/served_model.h"

namespace outrider {

std::vector<HttpRoute> anthropic_routes(std::shared_ptr<const ServedModel> model);

}  // namespace outrider

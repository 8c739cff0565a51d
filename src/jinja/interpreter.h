// Walks a parsed template and writes its text.

#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/runtime.h"
#include "jinja/syntax.h"
#include "jinja/template_limits.h"

namespace outrider::jinja {

using Variables = std::vector<std::pair<std::string_view, Value>>;

struct RenderOptions {
  TemplateLimits limits;
  std::size_t input_bytes = 0;  // of the messages: limits grow with it
  std::tm now = {};             // what strftime_now formats
};

// The template's text; `make_variables` makes what it can name, in the rendering's own memory.
// Throws Error with line and column where the template fails or reaches a limit. Thread-safe for
// one template.
Text render(const Template& source, const RenderOptions& options,
            const std::function<Variables(Runtime&)>& make_variables);

}  // namespace outrider::jinja

// Source to tree.

#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "jinja/syntax.h"
#include "jinja/template_limits.h"

namespace outrider::jinja {

// Throws Error, with line and column, for what jinja2 would refuse and for what this interpreter
// does not know.
std::unique_ptr<Template> parse(std::string_view source, std::string origin,
                                const TemplateLimits& limits);

}  // namespace outrider::jinja

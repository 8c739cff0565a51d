// Models as the command line names them.

#pragma once

#include <string>

#include "cli/console.h"
#include "cli/settings.h"
#include "formats/pull.h"

namespace outrider {

// UsageError if no model is called so, neither in the catalogue nor as the path of a file.
const std::string& checked_model_name(const std::string& name);

// How models are fetched: as the flags allow, with progress on the console.
PullOptions pull_options(const Settings& settings, Console& console);

}  // namespace outrider

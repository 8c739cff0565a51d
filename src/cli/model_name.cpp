#include "cli/model_name.h"

#include "cli/failure.h"
#include "formats/catalog.h"

namespace outrider {

const std::string& checked_model_name(const std::string& name) {
  try {
    parse_model_reference(name);
  } catch (const Error& error) {
    if (find_in_catalog(name)) throw;  // the name is right, but there is no place for the file
    throw UsageError("{}", error.what());
  }
  return name;
}

PullOptions pull_options(const Settings& settings, Console& console) {
  return {settings.offline, console.progress()};
}

}  // namespace outrider

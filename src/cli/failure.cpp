#include "cli/failure.h"

namespace outrider {
namespace {

std::string_view flag_of(Setting setting) {
  switch (setting) {
    case Setting::none: return "";
    case Setting::context: return "--ctx-size";
    case Setting::threads: return "--threads";
    case Setting::logit_bias: return "--logit-bias";
    case Setting::raw_prompt: return "--raw";
    case Setting::draft_model: return "--model-draft";
  }
  return "";
}

}  // namespace

std::string message_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  const std::string_view flag = ours ? flag_of(ours->setting()) : "";
  return flag.empty() ? error.what() : fmt::format("{} ({})", error.what(), flag);
}

}  // namespace outrider

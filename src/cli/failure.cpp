#include "cli/failure.h"

namespace outrider {
namespace {

std::string_view flag_of(Remedy remedy) {
  switch (remedy) {
    case Remedy::none: return "";
    case Remedy::context: return "--ctx-size";
    case Remedy::threads: return "--threads";
    case Remedy::logit_bias: return "--logit-bias";
    case Remedy::raw_prompt: return "--raw";
    case Remedy::draft_model: return "--model-draft";
    case Remedy::reasoning: return "--reasoning";
    case Remedy::cache_memory: return "--cache-memory";
    case Remedy::tokenizer_pre: return "--tokenizer-pre";
    case Remedy::chat_template: return "--chat-template-file";
  }
  return "";
}

}  // namespace

std::string message_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const Error*>(&error);
  const std::string_view flag = ours ? flag_of(ours->remedy()) : "";
  return flag.empty() ? error.what() : fmt::format("{} ({})", error.what(), flag);
}

}  // namespace outrider

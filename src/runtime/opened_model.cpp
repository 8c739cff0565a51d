#include "runtime/opened_model.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "formats/catalog.h"
#include "formats/gguf.h"
#include "formats/parse_json.h"
#include "runtime/sampling_defaults.h"

namespace outrider {

std::shared_ptr<const Checkpoint> open_checkpoint(const std::string& name,
                                                  const PullOptions& options) {
  return std::make_shared<Checkpoint>(
      read_gguf(locate_model(parse_model_reference(name), options)));
}

OpenedModel open_model(const std::string& name, const PullOptions& options,
                       const TextSettings& settings) {
  OpenedModel opened{name, interpret_checkpoint(open_checkpoint(name, options)), nullptr, nullptr};
  const Metadata& metadata = opened.model.checkpoint->metadata;
  opened.tokenizer = make_tokenizer(metadata, settings.tokenizer_pre);
  opened.chat_template =
      open_chat_template(name, metadata, *opened.tokenizer, settings.chat_template);
  return opened;
}

std::vector<std::string> text_warnings(const Metadata& metadata, const Tokenizer& tokenizer,
                                       const ChatTemplate* chat_template) {
  std::vector<std::string> lines = tokenizer.warnings;
  const std::vector<std::string> sampling = sampling_warnings(metadata);
  lines.insert(lines.end(), sampling.begin(), sampling.end());
  constexpr const char* kTemplate = "tokenizer.chat_template";
  if (!chat_template && metadata.find(kTemplate) != nullptr)
    lines.push_back(fmt::format("{}: {} is empty: taken as none", metadata.origin(), kTemplate));
  return lines;
}

std::vector<std::string> OpenedModel::warnings() const {
  std::vector<std::string> lines = model.warnings;
  const std::vector<std::string> others =
      text_warnings(model.checkpoint->metadata, *tokenizer, chat_template.get());
  lines.insert(lines.end(), others.begin(), others.end());
  return lines;
}

std::unique_ptr<ChatTemplate> open_chat_template(const std::string& name, const Metadata& metadata,
                                                 const Tokenizer& tokenizer,
                                                 const TemplateSettings& settings) {
  std::unique_ptr<ChatTemplate> chat_template =
      settings.source ? make_chat_template(settings.source->text, settings.source->path, tokenizer)
                      : make_chat_template(metadata, tokenizer);
  if (settings.variables.empty() && !settings.reasoning) return chat_template;
  if (!chat_template) throw Error("{}: has no chat template that could be given variables", name);
  nlohmann::ordered_json variables =
      settings.variables.empty() ? nlohmann::ordered_json::object()
                                 : parse_ordered_json(settings.variables, "template variables");
  if (settings.reasoning) {
    const std::vector<std::string> switches = chat_template->reasoning_switches();
    if (switches.empty())
      throw Error(Remedy::reasoning, "{}: its chat template cannot turn reasoning on or off", name);
    for (const std::string& variable : switches)
      if (!variables.contains(variable)) variables[variable] = *settings.reasoning;
  }
  chat_template->set_variables(dump_json(variables));
  return chat_template;
}

}  // namespace outrider

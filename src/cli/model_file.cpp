#include "cli/model_file.h"

#include "cli/failure.h"
#include "formats/catalog.h"
#include "formats/gguf.h"
#include "formats/pull.h"

namespace outrider {
namespace {

ModelReference reference(const std::string& name) {
  try {
    return parse_model_reference(name);
  } catch (const Error& error) {
    throw UsageError("{}", error.what());
  }
}

}  // namespace

std::shared_ptr<const Checkpoint> open_checkpoint(const std::string& name, const Settings& settings,
                                                  Console& console) {
  const auto path = locate_model(reference(name), {settings.offline, console.progress()});
  console.clear();
  return std::make_shared<Checkpoint>(read_gguf(path));
}

ModelFile open_model(const std::string& name, const Settings& settings, Console& console) {
  ModelFile file{name, understand(open_checkpoint(name, settings, console)), nullptr, nullptr};
  const Metadata& metadata = file.model.checkpoint->metadata;
  file.tokenizer = make_tokenizer(metadata);
  file.chat_template = make_chat_template(metadata, *file.tokenizer);
  return file;
}

}  // namespace outrider

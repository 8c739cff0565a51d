#include "runtime/opened_model.h"

#include "formats/catalog.h"
#include "formats/gguf.h"

namespace outrider {

std::shared_ptr<const Checkpoint> open_checkpoint(const std::string& name,
                                                  const PullOptions& options) {
  return std::make_shared<Checkpoint>(
      read_gguf(locate_model(parse_model_reference(name), options)));
}

OpenedModel open_model(const std::string& name, const PullOptions& options) {
  OpenedModel opened{name, understand(open_checkpoint(name, options)), nullptr, nullptr};
  const Metadata& metadata = opened.model.checkpoint->metadata;
  opened.tokenizer = make_tokenizer(metadata);
  opened.chat_template = make_chat_template(metadata, *opened.tokenizer);
  return opened;
}

}  // namespace outrider

// A model's file, found, read and understood, before any device loads it.

#pragma once

#include <memory>
#include <string>

#include "formats/checkpoint.h"
#include "formats/pull.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace outrider {

// The checkpoint of a catalogue model, pulled if it is missing, or of a path. Throws Error.
std::shared_ptr<const Checkpoint> open_checkpoint(const std::string& name,
                                                  const PullOptions& options);

struct OpenedModel {
  std::string name;  // as it was asked for
  Model model;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null if the file has none
};

OpenedModel open_model(const std::string& name, const PullOptions& options);

}  // namespace outrider

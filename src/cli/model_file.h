// A model's file, found, read and understood, before any device loads it.

#pragma once

#include <memory>
#include <string>

#include "cli/console.h"
#include "cli/settings.h"
#include "formats/checkpoint.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace outrider {

// The checkpoint of a catalogue model (pulled if it is missing and --offline does not forbid it) or
// of a path. UsageError for a name that does not exist.
std::shared_ptr<const Checkpoint> open_checkpoint(const std::string& name, const Settings& settings,
                                                  Console& console);

struct ModelFile {
  std::string name;  // as the user gave it
  Model model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  // null if the file has none
};

ModelFile open_model(const std::string& name, const Settings& settings, Console& console);

}  // namespace outrider

// A model's file, found, read and understood, before any device loads it.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

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

  // A line for each statement of the file that is not followed.
  std::vector<std::string> warnings() const;
};

// Of these, the lines about the tokenizer, the chat template and recommended sampling parameters.
std::vector<std::string> text_warnings(const Metadata& metadata, const Tokenizer& tokenizer,
                                       const ChatTemplate* chat_template);

// Which chat template is used, and how.
struct TemplateSettings {
  struct Source {
    std::string path, text;
  };
  std::optional<Source> source = {};   // instead of the model file's
  std::string variables = {};          // a JSON object: variables of every conversation
  std::optional<bool> reasoning = {};  // the model is to reason before it answers, or not to
};

// How texts become tokens, where the user says it instead of the model's file.
struct TextSettings {
  std::string tokenizer_pre = {};  // tokenizer.ggml.pre; empty: the file's
  TemplateSettings chat_template = {};
};

OpenedModel open_model(const std::string& name, const PullOptions& options,
                       const TextSettings& settings = {});

// The template of a model that was opened as `name`; null if there is none. Throws Error if the
// settings' own does not parse, or if it lacks what they ask for.
std::unique_ptr<ChatTemplate> open_chat_template(const std::string& name, const Metadata& metadata,
                                                 const Tokenizer& tokenizer,
                                                 const TemplateSettings& settings);

}  // namespace outrider

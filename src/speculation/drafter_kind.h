// What is known about a kind of drafter before one is made: its name, flags and maker. The table of
// kinds is runtime/drafter_registry.cpp.

#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/backend.h"
#include "model/head.h"
#include "speculation/drafter.h"
#include "speculation/drafters/earlier_answers.h"
#include "text/tokenizer.h"

namespace outrider {

// A flag of one kind, as data: command lines add it to theirs.
struct DrafterFlag {
  std::string name;      // "--draft-quantize"
  std::string value;     // what help calls the value: "TYPE"; empty: it takes none
  std::string standard;  // the value where the flag is not given
  std::string help;
  std::vector<std::string> choices;  // all values, if they are few
  // Throws Error with what is wrong about a value, without naming the flag. Null: takes none.
  void (*check)(std::string_view value) = nullptr;
};

// Values by the flag's name, as given; a flag that is not given stands at its standard.
using DrafterFlagValues = std::map<std::string, std::string, std::less<>>;

// What a drafter is made from; needed only while it is made.
struct DrafterContext {
  const Tokenizer& tokenizer;  // the target's
  int vocabulary;              // of the target's logits
  const DrafterFlagValues& flags;
  // Answers to earlier requests, for a drafter of its own. Null: there are none.
  std::function<std::shared_ptr<EarlierAnswers>(std::size_t memory_bytes)> earlier = nullptr;
  std::string value = {};                                  // what stood after "name="
  std::function<void(const std::string&)> note = nullptr;  // shows a line; null: nobody looks
  std::shared_ptr<Backend> target = nullptr;
  // Layers of the target that drafts leave out, as tune self found them; nothing: it did not. Null:
  // nobody knows.
  std::function<std::optional<std::vector<int>>()> tuned_layers = nullptr;
  // Of kinds that run a model:
  std::shared_ptr<Backend> model = nullptr;
  const Tokenizer* model_tokenizer = nullptr;
  const Metadata* model_metadata = nullptr;
};

struct DrafterKind {
  std::string name;             // as --draft and reports call it
  std::string other_name = {};  // that --draft takes for it, too
  std::string value;            // what stands after "name=": "MODEL"; empty: nothing does
  // The value, which may be missing, names a file with a text that answers are expected to repeat
  // mostly: a request's prediction.
  bool value_is_prediction = false;
  bool value_is_optional = false;  // "name" alone will do; of a head: it is in the target's file
  bool is_automatic = true;        // auto asks it, if it needs no value or has one
  std::string help;                // a line
  std::vector<DrafterFlag> flags = {};
  // Kinds that run a model, which their value names unless they copy the target, say how it is
  // loaded beside a target with these options and this tokenizer. Throws Error if the two do not go
  // together. Null: runs none.
  LoadOptions (*load_options)(LoadOptions target, const Tokenizer& target_tokenizer,
                              const ModelSpec& spec, const Tokenizer& tokenizer,
                              const DrafterFlagValues& flags) = nullptr;
  // Kinds whose value names a head of the target (Backend::head) say how it is loaded. Null: the
  // value names none.
  LoadOptions (*head_options)(const Head& head, const Tokenizer& target_tokenizer,
                              const DrafterFlagValues& flags) = nullptr;
  // Throws Error if the model and the target do not go together.
  std::unique_ptr<Drafter> (*make)(const DrafterContext& context);

  bool uses_target = false;    // it runs the target
  bool copies_target = false;  // its model is the target itself, encoded anew; the value says how
  // The kind that a value means, where values mean several. Null: this one.
  const DrafterKind* (*of_value)(std::string_view value) = nullptr;

  bool runs_model() const { return load_options != nullptr; }
  bool runs_head() const { return head_options != nullptr; }
  // Its value names a file of weights.
  bool names_file() const { return runs_head() || (runs_model() && !copies_target); }
  // "lookup", "prediction[=FILE]", "model=MODEL".
  std::string usage() const {
    if (value.empty()) return name;
    return value_is_prediction || value_is_optional ? fmt::format("{}[={}]", name, value)
                                                    : name + '=' + value;
  }
};

// A flag's value, or its standard. The kind has such a flag.
std::string_view flag_value(const DrafterKind& kind, const DrafterFlagValues& values,
                            std::string_view flag);

}  // namespace outrider

// The model that a server answers with, as its routes see it.

#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/scheduler.h"
#include "runtime/sampling_defaults.h"
#include "sampling/sampling.h"
#include "server/generation_fields.h"
#include "speculation/verifier.h"
#include "text/answer_format.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace outrider {

// Made once; all members may be used from several threads.
struct ServedModel {
  std::string name;                       // that answers carry
  std::vector<std::string> aliases = {};  // further names; "*" stands for any
  std::string version = {};               // of program and model: OpenAI's system_fingerprint
  std::int64_t created = 0;               // seconds since 1970
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template = nullptr;  // null: it holds no conversations
  AnswerFormat format = {};                                     // of the template
  int vocabulary = 0;                                           // tokens that the model has
  int context = 0;                         // tokens of prompt and answer together
  std::vector<std::string> drafters = {};  // their names
  GenerationLimits limits = {};
  bool keys_share_cache = false;            // API keys share cached pages and earlier answers
  UnknownFieldListener unknown_field = {};  // any thread
  // What the scheduler takes at once, running and waiting.
  std::size_t answers_max = std::numeric_limits<std::size_t>::max();
  // What a request says, then the server's flags, then the model's own, then ours.
  std::function<Filters(const FilterSettings&)> filters = {};
  int repeat_last_n = SamplingParams{}.repeat_last_n;  // of a request that does not say it
  std::string verifier{kVerifierNames[0]};             // the same
  TypicalAcceptance typical_acceptance = {};
  // The scheduler's.
  std::function<AnswerId(AnswerRequest, AnswerListener)> submit = {};
  std::function<void(AnswerId)> cancel = {};
};

// The name that an answer carries: the one asked for. RequestError (404) if it is not this model's.
std::string answering_name(const ServedModel& model, const std::string& asked);

}  // namespace outrider

// What all routes that generate text take in the same way.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "numerics/choice.h"
#include "runtime/sampling_defaults.h"
#include "server/fields.h"

namespace outrider {

// How much one request may ask for.
struct GenerationLimits {
  int n = 128;                    // answers to one prompt
  std::size_t prompts = 128;      // of one request
  std::size_t answers = 256;      // of one request
  std::size_t stops = 16;         // stop strings
  std::size_t stop_bytes = 256;   // of each
  std::size_t logit_bias = 1024;  // tokens
  int top_logprobs = 20;
  std::size_t messages = 10'000;
  std::size_t tools = 512;
  // An answer about tokens takes many times their own memory.
  std::size_t tokenized_bytes = std::size_t{1} << 20;
  std::size_t detokenized_tokens = std::size_t{1} << 18;
};

struct GenerationFields {
  std::string model = {};  // empty: whichever is served
  bool stream = false;
  bool include_usage = false;  // of a stream
  int n = 1;
  std::optional<int> max_tokens = {};  // nothing: as the route has it; -1: no limit
  std::vector<std::string> stop = {};
  bool ignore_eos = false;
  FilterSettings filters = {};
  std::optional<int> repeat_last_n = {};
  std::optional<std::uint64_t> seed = {};  // nothing: one is drawn
  std::vector<TokenBias> logit_bias = {};
  std::optional<int> n_logprobs = {};  // as in AnswerOptions
  std::string prediction = {};         // how the answer is expected to read; empty: not known
  std::optional<int> draft_rows = {};  // as in AnswerOptions
  std::optional<std::vector<std::string>> drafters = {};
  std::string verifier = {};  // its name; empty: the server's
  int priority = 0;
  std::string cache_salt = {};
};

// Fields of tables for requests that have GenerationFields as their base: what every route takes,
// and what OpenAI's take.
FieldTable<GenerationFields> served_fields();
FieldTable<GenerationFields> openai_fields(const GenerationLimits& limits);
// Of objects inside them.
std::vector<PartRows> generation_part_fields();

// What no field alone can tell. Throws RequestError (400).
void check_generation(const GenerationFields& fields);

// Readers that routes share.
FieldReader<GenerationFields> stop_field(const GenerationLimits& limits);
FieldReader<GenerationFields> filter_field(std::optional<float> FilterSettings::*filter,
                                           double least, double most);
FieldReader<GenerationFields> temperature_field(double most);
FieldReader<GenerationFields> top_k_field();
FieldReader<GenerationFields> token_limit_field(int least);  // of max_tokens
std::vector<Token> read_tokens(const FieldValue& value, std::size_t most = FieldValue::kAnyNumber);
// A string, or a list of parts of type text, whose texts are joined. Other parts are refused.
std::string text_of_parts(const FieldValue& value);

}  // namespace outrider

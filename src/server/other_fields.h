// Fields that clients of several APIs send and that a route does not read: parameters of OpenAI's,
// Anthropic's, llama.cpp's, vLLM's and Ollama's APIs, and of front ends for them. One list for all
// routes that generate text, so that a name means the same wherever it comes.

#pragma once

#include <string>
#include <vector>

#include "server/fields.h"

namespace outrider {

// A field that would change the answer: refused by its name, except with null or an accepted value.
struct RefusedField {
  std::string name;
  std::vector<std::string> accepted = {};  // as JSON
  std::string remedy = {};
};
const std::vector<RefusedField>& refused_fields();

// A field that changes nothing here, and is sent too often to be noted as unknown.
struct HarmlessField {
  std::string name;
  std::string reason = {};  // empty: it is about other things than the answer
};
const std::vector<HarmlessField>& harmless_fields();

// Rows for all of them, that a table of a route falls back on.
template <typename Request>
const FieldTable<Request>& other_fields() {
  static const FieldTable<Request> table = [] {
    FieldTable<Request> made;
    for (const HarmlessField& field : harmless_fields()) made.harmless(field.name, field.reason);
    for (const RefusedField& field : refused_fields())
      made.refused(field.name, field.accepted, field.remedy);
    return made;
  }();
  return table;
}

}  // namespace outrider

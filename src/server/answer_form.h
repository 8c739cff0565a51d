// How the answers to a request become what its client gets: one document, or a stream of events.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/scheduler.h"
#include "http/request_error.h"
#include "server/fields.h"

namespace outrider {

// What all documents and events of an answer say.
struct AnswerHead {
  std::string id;
  std::string model;         // as it was asked for
  std::string version = {};  // OpenAI's system_fingerprint; empty: none
  std::int64_t created = 0;  // seconds since 1970
  std::uint64_t seed = 0;
};

// Pure: events in, text out. Not thread-safe.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;

  // Of a stream: its first events.
  virtual std::string begin() { return {}; }
  // What an answer's step adds to the stream. `index` counts the request's answers from 0.
  virtual std::string push(int index, const AnswerEvent& event) = 0;
  // Whether the client needs no more of this answer (parallel calls are off, and one is complete),
  // so that it can be cancelled before its end.
  virtual bool has_enough(int /*index*/) const { return false; }
  // After the last end: the stream's last events, or the document.
  virtual std::string end() = 0;
  // Of a stream, instead of end().
  virtual std::string fail(const RequestError&) { return {}; }
};

// What OpenAI's documents and chunks begin with.
Json head_json(const AnswerHead& head, std::string_view object);

// How OpenAI's streams tell an error, and their end.
std::string openai_error_event(const RequestError& error);
inline constexpr std::string_view kOpenAiDone = "data: [DONE]\n\n";

// Ill-formed UTF-8 becomes U+FFFD.
std::string document_text(const Json& json);
// Server-sent events, the second kind with a name.
std::string event_text(const Json& json);
std::string event_text(std::string_view name, const Json& json);

// The figures of all answers to a request: numbers are sums, times the longest. `with_prompt`: of
// answers to the same prompt one counts it.
void add_figures(AnswerFigures& sum, const AnswerFigures& figures, bool with_prompt);

// OpenAI's usage, with the tokens spent on reasoning if that is known, and llama-server's timings
// with what is ours: how many drafted tokens steps accepted, and why steps had no drafts.
Json openai_usage_json(const AnswerFigures& figures, std::optional<int> n_reasoning = {});
Json timings_json(const AnswerFigures& figures);

// The error that a client gets for an answer that has failed, or was cancelled by the server.
std::optional<RequestError> failure(const AnswerEnd& end);

}  // namespace outrider

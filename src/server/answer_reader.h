// One answer while it comes: its text as content, reasoning and calls of tools.

#pragma once

#include <string_view>
#include <vector>

#include "engine/scheduler.h"
#include "text/answer_parser.h"

namespace outrider {

class AnswerReader {
 public:
  AnswerReader(const AnswerFormat& format, const AnswerParserOptions& options);

  // What the event adds; neighbouring texts of one kind are joined.
  std::vector<AnswerDelta> read(const AnswerEvent& event);

  // The answer calls tools: calls that have begun and are not void.
  bool calls() const { return n_calls_ > 0; }
  // Tokens that the model spent on reasoning, to the token that ends it.
  int n_reasoning() const { return n_reasoning_; }
  // Without parallel calls: one is complete, and what follows is ignored.
  bool has_enough() const { return parser_.ended(); }

 private:
  void add(std::vector<AnswerDelta>& deltas, AnswerDelta delta);

  AnswerParser parser_;
  int n_calls_ = 0, n_reasoning_ = 0;
  bool is_reasoning_ = false;
};

}  // namespace outrider

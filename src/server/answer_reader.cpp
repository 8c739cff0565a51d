#include "server/answer_reader.h"

#include <string>
#include <utility>

namespace outrider {

using Kind = AnswerDelta::Kind;

AnswerReader::AnswerReader(const AnswerFormat& format, const AnswerParserOptions& options)
    : parser_(format, options) {
  parser_.push("");  // content that the prompt began is not the answer's
}

std::vector<AnswerDelta> AnswerReader::read(const AnswerEvent& event) {
  std::vector<AnswerDelta> deltas;
  for (const AnswerToken& token : event.tokens) {
    for (AnswerDelta& delta : parser_.push(token.text)) {
      is_reasoning_ = delta.kind == Kind::reasoning;
      add(deltas, std::move(delta));
    }
    n_reasoning_ += is_reasoning_;
  }
  for (AnswerDelta& delta : parser_.push(event.held_text)) add(deltas, std::move(delta));
  if (!event.end) return deltas;
  for (AnswerDelta& delta : parser_.finish()) add(deltas, std::move(delta));
  return deltas;
}

void AnswerReader::add(std::vector<AnswerDelta>& deltas, AnswerDelta delta) {
  if (delta.kind == Kind::call) ++n_calls_;
  if (delta.kind == Kind::call_void) --n_calls_;
  const bool is_text =
      delta.kind == Kind::content || delta.kind == Kind::reasoning || delta.kind == Kind::arguments;
  if (is_text && delta.text.empty()) return;
  if (is_text && !deltas.empty() && deltas.back().kind == delta.kind)
    deltas.back().text += delta.text;
  else
    deltas.push_back(std::move(delta));
}

}  // namespace outrider

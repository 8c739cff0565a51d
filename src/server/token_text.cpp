#include "server/token_text.h"

#include <fmt/format.h>

#include <utility>

#include "base/utf8.h"

namespace outrider {
namespace {

Json bytes_json(std::string_view bytes) {
  Json json = Json::array();
  for (const char byte : bytes) json.push_back(static_cast<unsigned char>(byte));
  return json;
}

Json logprob_json(const Tokenizer& tokenizer, Token token, float logprob) {
  return {{"token", token_text(tokenizer, token)},
          {"logprob", logprob},
          {"bytes", bytes_json(tokenizer.bytes(token, true))}};
}

}  // namespace

std::string token_text(const Tokenizer& tokenizer, Token token) {
  const std::string bytes = tokenizer.bytes(token, true);
  if (is_well_formed(bytes)) return bytes;
  std::string text = "bytes:";
  for (const char byte : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Json chat_logprob(const Tokenizer& tokenizer, Token token, const ScoredToken& score) {
  Json json = logprob_json(tokenizer, token, score.logprob);
  Json best = Json::array();
  for (const TokenLogprob& other : score.best)
    best.push_back(logprob_json(tokenizer, other.token, other.logprob));
  json["top_logprobs"] = std::move(best);
  return json;
}

void CompletionLogprobs::add(Token token, const ScoredToken* score) {
  tokens_.push_back(token_text(tokenizer_, token));
  offsets_.push_back(next_offset(tokenizer_.bytes(token)));
  if (!score) {
    logprobs_.push_back(nullptr);
    best_.push_back(nullptr);
    return;
  }
  logprobs_.push_back(score->logprob);
  Json best = Json::object();
  for (const TokenLogprob& other : score->best)
    best.emplace(token_text(tokenizer_, other.token), other.logprob);
  best_.push_back(std::move(best));
}

std::size_t CompletionLogprobs::next_offset(std::string_view bytes) {
  const std::size_t n_begun = begun_.size();
  begun_ += bytes;
  const bool breaks = n_begun > 0 && !bytes.empty() && utf8_step(begun_).n_bytes == n_begun;
  const std::size_t offset = n_characters_ + (breaks ? 1 : 0);
  const std::size_t n_whole = begun_.size() - unfinished_suffix(begun_);
  n_characters_ += n_characters(well_formed(std::string_view(begun_).substr(0, n_whole)));
  begun_.erase(0, n_whole);
  return offset;
}

Json CompletionLogprobs::take() {
  return {{"tokens", std::exchange(tokens_, Json::array())},
          {"token_logprobs", std::exchange(logprobs_, Json::array())},
          {"top_logprobs", std::exchange(best_, Json::array())},
          {"text_offset", std::exchange(offsets_, Json::array())}};
}

}  // namespace outrider

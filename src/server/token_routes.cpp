#include "server/token_routes.h"

#include <fmt/format.h>

#include <utility>

#include "base/utf8.h"
#include "server/answer_form.h"
#include "server/chat_prompt.h"
#include "server/token_requests.h"

namespace outrider {
namespace {

using Reply = std::shared_ptr<HttpReply>;

std::vector<Token> tokens_of(const ServedModel& model, const TokenizeRequest& request) {
  std::vector<TextPiece> pieces;
  if (const auto& text = request.content ? request.content : request.prompt)
    pieces.push_back({*text, request.parses_special_tokens});
  else
    pieces = chat_prompt(model, request).pieces;
  std::size_t n_bytes = 0;
  for (const TextPiece& piece : pieces) n_bytes += piece.text.size();
  if (n_bytes > model.limits.tokenized_bytes)
    refuse_field(request.content  ? "content"
                 : request.prompt ? "prompt"
                                  : "messages",
                 fmt::format("found a text of {} bytes, expected at most {}", n_bytes,
                             model.limits.tokenized_bytes));
  return request.adds_special_tokens ? model.tokenizer->encode_whole(pieces)
                                     : model.tokenizer->encode(pieces);
}

void check_tokens(const ServedModel& model, const std::vector<Token>& tokens) {
  for (const Token token : tokens)
    if (token >= model.tokenizer->size())
      refuse_field("tokens", fmt::format("no token {}; the vocabulary has {}", token,
                                         model.tokenizer->size()));
}

// A text, or bytes if they are not whole characters: llama-server's way.
Json piece_json(const std::string& bytes) {
  if (is_well_formed(bytes)) return bytes;
  Json json = Json::array();
  for (const char byte : bytes) json.push_back(static_cast<unsigned char>(byte));
  return json;
}

Json llama_json(const ServedModel& model, const std::vector<Token>& tokens, bool with_pieces) {
  Json json = {{"tokens", Json::array()}};
  for (const Token token : tokens) {
    if (with_pieces)
      json["tokens"].push_back(
          {{"id", token}, {"piece", piece_json(model.tokenizer->bytes(token, true))}});
    else
      json["tokens"].push_back(token);
  }
  return json;
}

Json vllm_json(const ServedModel& model, const std::vector<Token>& tokens, bool with_pieces) {
  Json texts;
  if (with_pieces) {
    texts = Json::array();
    for (const Token token : tokens) texts.push_back(model.tokenizer->text(token));
  }
  return {{"count", tokens.size()},
          {"max_model_len", model.context},
          {"tokens", tokens},
          {"token_strs", std::move(texts)}};
}

Json tokenize(const ServedModel& model, const HttpRequest& http) {
  const TokenizeRequest request =
      read_tokenize_request(http.body, model.limits, model.unknown_field);
  answering_name(model, request.model);
  const std::vector<Token> tokens = tokens_of(model, request);
  return request.content ? llama_json(model, tokens, request.with_pieces)
                         : vllm_json(model, tokens, request.with_pieces);
}

Json detokenize(const ServedModel& model, const HttpRequest& http) {
  const DetokenizeRequest request =
      read_detokenize_request(http.body, model.limits, model.unknown_field);
  answering_name(model, request.model);
  check_tokens(model, request.tokens);
  const std::string text = well_formed(model.tokenizer->decode(request.tokens, true));
  return {{"content", text}, {"prompt", text}};  // llama-server's name and vLLM's
}

Json apply_template(const ServedModel& model, const HttpRequest& http) {
  const TemplateRequest request =
      read_template_request(http.body, model.limits, model.unknown_field);
  answering_name(model, request.model);
  return {{"prompt", chat_prompt(model, request).text()}};
}

}  // namespace

std::vector<HttpRoute> token_routes(std::shared_ptr<const ServedModel> model) {
  const auto route = [&](const char* path, auto answer) {
    return HttpRoute{"POST", path, [model, answer](const HttpRequest& http, const Reply& reply) {
                       reply->send({.body = document_text(answer(*model, http))});
                     }};
  };
  return {route("/tokenize", tokenize), route("/detokenize", detokenize),
          route("/apply-template", apply_template)};
}

}  // namespace outrider

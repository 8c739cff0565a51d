#include "server/missing_routes.h"

namespace outrider {
namespace {

constexpr const char* kTextAlone = "this server answers with text alone";
constexpr const char* kOneModel = "this server has one model, given when it starts";

}  // namespace

const std::vector<MissingRoute>& missing_routes() {
  static const std::vector<MissingRoute> routes = {
      // OpenAI's. Codex asks for nothing else.
      {"/v1/responses",
       "OpenAI's Responses API, which Codex needs, is not spoken here; use /v1/chat/completions or "
       "/v1/messages, or a gateway that translates"},
      {"/v1/responses/*", "use /v1/chat/completions"},
      {"/v1/embeddings", kTextAlone},
      {"/v1/audio/*", kTextAlone},
      {"/v1/images/*", kTextAlone},
      {"/v1/moderations", kTextAlone},
      // Base URLs with too much and with too little.
      {"/v1/v1/*", "the client adds /v1 of itself; leave it out of its base URL"},
      {"/chat/completions", "use /v1/chat/completions; the client's base URL has to end with /v1"},
      {"/completions", "use /v1/completions; the client's base URL has to end with /v1"},
      {"/models", "use /v1/models; the client's base URL has to end with /v1"},
      {"/responses", "use /v1/chat/completions; the client's base URL has to end with /v1"},
      {"/messages", "use /v1/messages"},
      // Anthropic's.
      {"/v1/complete", "use /v1/messages"},
      {"/v1/messages/batches", "ask /v1/messages for each"},
      // llama.cpp's.
      {"/completion", "use /v1/completions, with max_tokens for n_predict"},
      {"/infill", "use /v1/completions, with the model's own marks in the prompt"},
      {"/embedding", kTextAlone},
      {"/embeddings", kTextAlone},
      {"/rerank", kTextAlone},
      {"/v1/rerank", kTextAlone},
      {"/lora-adapters", kOneModel},
      // Ollama's.
      {"/api/chat", "use /v1/chat/completions: this server does not speak Ollama's API"},
      {"/api/generate", "use /v1/completions: this server does not speak Ollama's API"},
      {"/api/tags", "use /v1/models: this server does not speak Ollama's API"},
      {"/api/ps", "use /v1/models: this server does not speak Ollama's API"},
      {"/api/show", "use /props: this server does not speak Ollama's API"},
      {"/api/version", "use /version: this server does not speak Ollama's API"},
      {"/api/embed", kTextAlone},
      {"/api/embeddings", kTextAlone},
      {"/api/pull", kOneModel},
      // vLLM's.
      {"/v1/score", kTextAlone},
      {"/pooling", kTextAlone},
      {"/v1/load_lora_adapter", kOneModel},
  };
  return routes;
}

std::string_view instead_of(std::string_view path) {
  for (const MissingRoute& route : missing_routes()) {
    const std::string_view known = route.path;
    const bool fits =
        known.ends_with("/*") ? path.starts_with(known.substr(0, known.size() - 1)) : path == known;
    if (fits) return route.instead;
  }
  return {};
}

}  // namespace outrider

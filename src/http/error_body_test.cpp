#include "http/error_body.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace outrider {
namespace {

TEST(ErrorBody, TypesFollowFromStatus) {
  struct Case {
    int status;
    const char *openai, *anthropic;
  };
  const Case cases[] = {
      {400, "invalid_request_error", "invalid_request_error"},
      {401, "invalid_request_error", "authentication_error"},
      {403, "permission_error", "permission_error"},
      {404, "invalid_request_error", "not_found_error"},
      {405, "invalid_request_error", "invalid_request_error"},
      {413, "invalid_request_error", "request_too_large"},
      {415, "invalid_request_error", "invalid_request_error"},
      {429, "rate_limit_error", "rate_limit_error"},
      {500, "server_error", "api_error"},
      {503, "service_unavailable_error", "overloaded_error"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.status);
    const auto openai = nlohmann::json::parse(openai_error_body(c.status, "m"));
    EXPECT_EQ(openai["error"]["type"], c.openai);
    const auto anthropic = nlohmann::json::parse(anthropic_error_body(c.status, "m"));
    EXPECT_EQ(anthropic["error"]["type"], c.anthropic);
  }
}

TEST(ErrorBody, Shapes) {
  EXPECT_EQ(openai_error_body(400, "a \"b\"", "code", "messages[0]"),
            R"({"error":{"message":"a \"b\"","type":"invalid_request_error",)"
            R"("param":"messages[0]","code":"code"}})");
  EXPECT_EQ(openai_error_body(500, "m"),
            R"({"error":{"message":"m","type":"server_error","param":null,"code":null}})");
  EXPECT_EQ(anthropic_error_body(404, "m"),
            R"({"type":"error","error":{"type":"not_found_error","message":"m"}})");
}

TEST(ErrorBody, IllFormedTextIsReplaced) {
  EXPECT_EQ(
      anthropic_error_body(404, "\xff"),
      "{\"type\":\"error\",\"error\":{\"type\":\"not_found_error\",\"message\":\"\xef\xbf\xbd\"}}");
}

TEST(ErrorBody, ShapeFollowsFromPath) {
  const RequestError error(422, "code", "param", "m");
  for (const char* path : {"/v1/messages", "/v1/messages/count_tokens"}) {
    EXPECT_EQ(error_response(path, error).body, anthropic_error_body(422, "m")) << path;
  }
  for (const char* path : {"", "/", "/v1/chat/completions", "/v1/message", "/v1/messagesx"}) {
    EXPECT_EQ(error_response(path, error).body, openai_error_body(422, "m", "code", "param"))
        << path;
  }
  EXPECT_EQ(error_response("/", error).status, 422);
}

}  // namespace
}  // namespace outrider

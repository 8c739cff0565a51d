#include "http/guards.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"

namespace outrider {
namespace {

HttpRequest request(std::string method, std::string path, HttpHeaders headers) {
  return {.method = std::move(method),
          .path = std::move(path),
          .query = "",
          .headers = std::move(headers),
          .body = ""};
}

const HttpHeaders kJson = {{"Host", "localhost"}, {"Content-Type", "application/json"}};

HttpHeaders json_with(HttpHeaders headers) {
  headers.insert(headers.end(), kJson.begin(), kJson.end());
  return headers;
}

std::optional<std::string> header(const HttpHeaders& headers, std::string_view name) {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return std::nullopt;
}

// 0: it passes.
int status(const Guards& guards, HttpRequest request) {
  const auto response = guards.check(request);
  return response ? response->status : 0;
}

TEST(Guards, LoopbackHosts) {
  struct Case {
    const char* host;
    bool is_loopback;
  };
  const Case cases[] = {
      {"localhost", true},
      {"LocalHost:8080", true},
      {"localhost:", true},
      {"127.0.0.1", true},
      {"127.0.0.1:80", true},
      {"127.255.3.4", true},
      {"[::1]", true},
      {"[::1]:8080", true},
      {"", false},
      {"example.com", false},
      {"localhost.example.com", false},
      {"127.0.0.1.nip.io", false},
      {"127.0.0", false},
      {"127.0.0.1.", false},
      {"128.0.0.1", false},
      {"0.0.0.0", false},
      {"192.168.1.1", false},
      {"127.0.0.256", false},
      {"[::2]", false},
      {"[::1", false},
      {"::1", false},
      {"[::1]x", false},
      {"localhost:80@evil.com", false},
      {"localhost@evil.com", false},
      {"[::1]:80.evil.com", false},
      {"xlocalhost", false},
      {"localhost ", false},
  };
  for (const Case& c : cases) EXPECT_EQ(is_loopback_host(c.host), c.is_loopback) << c.host;
}

TEST(Guards, LoopbackWithoutKeyServesThisMachineAlone) {
  struct Case {
    const char* name;
    HttpHeaders headers;
    int status;
  };
  const Case cases[] = {
      {"localhost", {{"Host", "localhost:8080"}}, 0},
      {"address", {{"host", "127.0.0.1:8080"}}, 0},
      {"HTTP/1.0 without Host", {}, 0},
      {"another name", {{"Host", "evil.example"}}, 403},
      {"another name with our port", {{"Host", "evil.example:8080"}}, 403},
      {"empty Host", {{"Host", ""}}, 403},
      {"page of this machine", {{"Host", "localhost"}, {"Origin", "http://localhost:3000"}}, 0},
      {"page of this machine, IPv6", {{"Host", "localhost"}, {"Origin", "http://[::1]:3000"}}, 0},
      {"page of elsewhere", {{"Host", "localhost"}, {"Origin", "https://evil.example"}}, 403},
      {"page that pretends",
       {{"Host", "localhost"}, {"Origin", "http://localhost.evil.example"}},
       403},
      {"page of a file", {{"Host", "localhost"}, {"Origin", "null"}}, 403},
      {"empty origin", {{"Host", "localhost"}, {"Origin", ""}}, 403},
  };
  const Guards loopback({}, true), network({}, false), keyed({.api_keys = {"k"}}, true);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(status(loopback, request("GET", "/health", c.headers)), c.status);
    HttpHeaders post = c.headers;
    post.emplace_back("Content-Type", "application/json");
    EXPECT_EQ(status(loopback, request("POST", "/v1/models", post)), c.status);
    // Where others may call, or need a key, the name of the host says nothing.
    EXPECT_EQ(status(network, request("POST", "/v1/models", post)), 0);
    post.emplace_back("x-api-key", "k");
    EXPECT_EQ(status(keyed, request("POST", "/v1/models", post)), 0);
  }
}

TEST(Guards, Keys) {
  struct Case {
    const char* name;
    HttpHeaders headers;
    std::optional<std::size_t> key;  // nothing: refused
  };
  const Case cases[] = {
      {"bearer", {{"Authorization", "Bearer first"}}, 0},
      {"bearer in capitals", {{"AUTHORIZATION", "BEARER first"}}, 0},
      {"second key", {{"Authorization", "Bearer second one"}}, 1},
      {"two spaces", {{"Authorization", "Bearer  first"}}, 0},
      {"x-api-key", {{"X-Api-Key", "second one"}}, 1},
      {"one of both is right", {{"Authorization", "Bearer no"}, {"x-api-key", "first"}}, 0},
      {"other one of both", {{"Authorization", "Bearer first"}, {"x-api-key", "no"}}, 0},
      {"none", {}, {}},
      {"another", {{"Authorization", "Bearer other"}}, {}},
      {"beginning", {{"Authorization", "Bearer firs"}}, {}},
      {"more", {{"Authorization", "Bearer first1"}}, {}},
      {"other case", {{"Authorization", "Bearer First"}}, {}},
      {"empty", {{"Authorization", "Bearer "}}, {}},
      {"only the scheme", {{"Authorization", "Bearer"}}, {}},
      {"empty x-api-key", {{"x-api-key", ""}}, {}},
      {"no scheme", {{"Authorization", "first"}}, {}},
      {"another scheme", {{"Authorization", "Basic first"}}, {}},
      {"query's name", {{"api-key", "first"}}, {}},
  };
  const Guards guards({.api_keys = {"first", "second one"}}, true);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    for (const char* path : {"/v1/models", "/v1/messages", "/metrics", "/nowhere", "/health/x"}) {
      for (const char* method : {"GET", "POST", "OPTIONS"}) {
        HttpRequest r = request(method, path, json_with(c.headers));
        const auto response = guards.check(r);
        EXPECT_EQ(r.api_key, c.key);
        EXPECT_EQ(response.has_value(), !c.key);
        if (!response) continue;
        EXPECT_EQ(response->status, 401);
        EXPECT_EQ(header(response->headers, "www-authenticate"), "Bearer");
        const auto body = nlohmann::json::parse(response->body);
        if (path == std::string("/v1/messages")) {
          EXPECT_EQ(body["error"]["type"], "authentication_error");
        } else {
          EXPECT_EQ(body["error"]["code"], "invalid_api_key");
        }
      }
    }
    EXPECT_EQ(status(guards, request("GET", "/health", c.headers)), 0);
    EXPECT_EQ(status(guards, request("HEAD", "/health", c.headers)), 0);
    EXPECT_EQ(status(guards, request("POST", "/health", json_with(c.headers))), c.key ? 0 : 401);
  }
}

TEST(Guards, EmptyKeyIsRefused) {
  EXPECT_THROW(Guards({.api_keys = {"a", ""}}, true), Error);
}

TEST(Guards, PostsAreJson) {
  struct Case {
    const char* type;
    int status;
  };
  const Case cases[] = {
      {"application/json", 0},
      {"Application/JSON", 0},
      {"application/json; charset=utf-8", 0},
      {"application/json;charset=utf-8", 0},
      {"application/json ;x=y", 0},
      {"application/json; charset=utf-16", 415},
      {"text/plain", 415},
      {"text/plain; application/json", 415},
      {"application/x-www-form-urlencoded", 415},
      {"multipart/form-data; boundary=x", 415},
      {"application/jsonp", 415},
      {"application/json, text/plain", 415},
      {"", 415},
  };
  const Guards guards({}, false);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.type);
    EXPECT_EQ(status(guards, request("POST", "/x", {{"content-type", c.type}})), c.status);
    EXPECT_EQ(status(guards, request("GET", "/x", {{"content-type", c.type}})), 0);
  }
  EXPECT_EQ(status(guards, request("POST", "/x", {})), 415);
}

TEST(Guards, PagesReadNothingUnlessAllowed) {
  HttpRequest r = request("OPTIONS", "/v1/models",
                          {{"Host", "localhost"},
                           {"Origin", "http://localhost:1"},
                           {"Access-Control-Request-Method", "GET"}});
  const Guards guards({}, true);
  EXPECT_EQ(guards.check(r), std::nullopt);  // the router says 405
  EXPECT_TRUE(guards.cors_headers(r).empty());
}

TEST(Guards, AllowedPages) {
  struct Case {
    const char* name;
    std::vector<std::string> allowed;
    const char* origin;
    bool may_read;
  };
  const Case cases[] = {
      {"the same", {"https://a.example"}, "https://a.example", true},
      {"one of two", {"https://a.example", "https://b.example:1"}, "https://b.example:1", true},
      {"any", {"*"}, "https://a.example", true},
      {"a file, if any", {"*"}, "null", true},
      {"another scheme", {"https://a.example"}, "http://a.example", false},
      {"another port", {"https://a.example"}, "https://a.example:1", false},
      {"a name that begins alike", {"https://a.example"}, "https://a.example.com", false},
      {"a name that ends alike", {"https://a.example"}, "https://aa.example", false},
      {"a file", {"https://a.example"}, "null", false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    for (const bool has_key : {false, true}) {
      const Guards guards(
          {.api_keys = has_key ? std::vector<std::string>{"k"} : std::vector<std::string>{},
           .cors_origins = c.allowed},
          true);
      HttpRequest preflight = request("OPTIONS", "/v1/models",
                                      {{"Host", "localhost"},
                                       {"Origin", c.origin},
                                       {"Access-Control-Request-Method", "POST"},
                                       {"Access-Control-Request-Headers", "authorization,x-a"}});
      const auto response = guards.check(preflight);
      ASSERT_TRUE(response);
      EXPECT_EQ(response->status, c.may_read ? 204 : has_key ? 401 : 403);
      if (c.may_read) {
        EXPECT_EQ(header(response->headers, "access-control-allow-headers"), "authorization,x-a");
        EXPECT_NE(header(response->headers, "access-control-allow-methods").value().find("POST"),
                  std::string::npos);
      }
      HttpRequest post =
          request("POST", "/v1/models", json_with({{"Origin", c.origin}, {"x-api-key", "k"}}));
      EXPECT_EQ(status(guards, post), c.may_read || has_key ? 0 : 403);
      const HttpHeaders cors = guards.cors_headers(post);
      EXPECT_EQ(header(cors, "access-control-allow-origin"),
                c.may_read ? std::optional<std::string>(c.origin) : std::nullopt);
      EXPECT_EQ(header(cors, "vary"), "origin");
    }
  }
}

// What a page asks for comes back in a header, so it may be names only.
TEST(Guards, PreflightRepeatsNamesOnly) {
  const Guards guards({.cors_origins = {"*"}}, true);
  HttpRequest preflight = request("OPTIONS", "/v1/models",
                                  {{"Host", "localhost"},
                                   {"Origin", "null"},
                                   {"Access-Control-Request-Method", "POST"},
                                   {"Access-Control-Request-Headers", "a: b"}});
  const auto response = guards.check(preflight);
  ASSERT_TRUE(response);
  EXPECT_EQ(header(response->headers, "access-control-allow-headers"), std::nullopt);
}

// A page that is allowed still may not come by a name that was pointed here.
TEST(Guards, AllowedPagesNeedTheRightHost) {
  const Guards guards({.cors_origins = {"*"}}, true);
  EXPECT_EQ(status(guards, request("GET", "/", {{"Host", "a.example"}, {"Origin", "null"}})), 403);
}

}  // namespace
}  // namespace outrider

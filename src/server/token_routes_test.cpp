#include "server/token_routes.h"

#include <gtest/gtest.h>

#include "server/fake_served_model.h"

namespace outrider {
namespace {

struct ServedTokens : FakeScheduler {
  Json post(const std::string& path, const std::string& body) {
    return ask(token_routes(model()),
               {.method = "POST", .path = path, .query = "", .headers = {}, .body = body})
        ->json();
  }
};

constexpr int kA = 5 + 'a' - ' ';  // the token of "a"

TEST(TokenRoutes, TokenizesAsLlamaServerDoes) {
  ServedTokens served;
  EXPECT_EQ(served.post("/tokenize", R"({"content":"ab"})").dump(),
            fmt::format(R"({{"tokens":[{},{}]}})", kA, kA + 1));
  EXPECT_EQ(served.post("/tokenize", R"({"content":"aé","with_pieces":true})").dump(),
            fmt::format(R"({{"tokens":[{{"id":{},"piece":"a"}},{{"id":1,"piece":[195]}},)"
                        R"({{"id":2,"piece":[169]}}]}})",
                        kA));
  EXPECT_EQ(served.post("/tokenize", R"({"content":""})").dump(), R"({"tokens":[]})");
}

TEST(TokenRoutes, TokenizesAsVllmDoes) {
  ServedTokens served;
  EXPECT_EQ(
      served.post("/tokenize", R"({"prompt":"a"})").dump(),
      fmt::format(R"({{"count":1,"max_model_len":1000,"tokens":[{}],"token_strs":null}})", kA));
  const Json chat = served.post(
      "/tokenize", R"({"messages":[{"role":"user","content":"a"}],"return_token_strs":true})");
  std::string text;
  for (const Json& piece : chat["token_strs"]) text += piece.get<std::string>();
  EXPECT_EQ(text, "[user]a[assistant]");
  EXPECT_EQ(chat["count"], text.size());
}

TEST(TokenRoutes, AddsBosWhereTheModelExpectsIt) {
  ServedTokens served;
  const auto tokenizer = letters();
  tokenizer->bos = 3;
  tokenizer->add_bos = true;
  served.setting().tokenizer = tokenizer;
  const auto n_tokens = [&](const char* body) {
    return served.post("/tokenize", body)["tokens"].size();
  };
  EXPECT_EQ(n_tokens(R"({"content":"a"})"), 1u);
  EXPECT_EQ(n_tokens(R"({"content":"a","add_special":true})"), 2u);
  EXPECT_EQ(n_tokens(R"({"prompt":"a"})"), 2u);
  EXPECT_EQ(n_tokens(R"({"prompt":"a","add_special_tokens":false})"), 1u);
}

TEST(TokenRoutes, Detokenizes) {
  ServedTokens served;
  EXPECT_EQ(served.post("/detokenize", fmt::format(R"({{"tokens":[3,{},1,2,1]}})", kA)).dump(),
            "{\"content\":\"<s>aé\xef\xbf\xbd\",\"prompt\":\"<s>aé\xef\xbf\xbd\"}");
  const RequestError error = refused([&] { served.post("/detokenize", R"({"tokens":[0,100]})"); });
  EXPECT_EQ(error.param, "tokens");
  EXPECT_EQ(error.status, 400);
}

TEST(TokenRoutes, AppliesTheTemplate) {
  ServedTokens served;
  EXPECT_EQ(served
                .post("/apply-template",
                      R"({"messages":[{"role":"user","content":"a"},
                                        {"role":"assistant","content":"b"}],
                            "continue_final_message":true})")
                .dump(),
            R"({"prompt":"[user]a[assistant]<think></think>b"})");
  EXPECT_EQ(refused([&] {
              served.post("/apply-template",
                          R"({"model":"x","messages":[{"role":"user","content":"a"}]})");
            }).status,
            404);
}

}  // namespace
}  // namespace outrider

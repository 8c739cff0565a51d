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

// An answer would take many times the memory.
TEST(TokenRoutes, RefusesWhatIsTooLong) {
  ServedTokens served;
  served.setting().limits.tokenized_bytes = 20;
  served.setting().limits.detokenized_tokens = 3;
  const auto refused = [&](const char* path, const std::string& body) {
    try {
      served.post(path, body);
    } catch (const RequestError& error) {
      EXPECT_EQ(error.status, 400);
      return error.param;
    }
    return std::string("accepted");
  };
  const std::string fits(20, 'a'), long_text(21, 'a');
  for (const char* field : {"content", "prompt"}) {
    EXPECT_EQ(refused("/tokenize", fmt::format(R"({{"{}":"{}"}})", field, fits)), "accepted");
    EXPECT_EQ(refused("/tokenize", fmt::format(R"({{"{}":"{}"}})", field, long_text)), field);
  }
  EXPECT_EQ(refused("/tokenize", R"({"messages":[{"role":"user","content":"abcd"}]})"), "messages");
  EXPECT_EQ(refused("/detokenize", R"({"tokens":[5,6,7]})"), "accepted");
  EXPECT_EQ(refused("/detokenize", R"({"tokens":[5,6,7,8]})"), "tokens");
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

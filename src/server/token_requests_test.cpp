#include "server/token_requests.h"

#include <gtest/gtest.h>

#include "server/request_fields_test.h"

namespace outrider {
namespace {

const std::string kContent = R"({"content":"a"})", kPrompt = R"({"prompt":"a"})",
                  kMessages = R"({"messages":[{"role":"user","content":"hi"}]})";

TokenizeRequest read_tokenize(const std::string& body) {
  return read_tokenize_request(body);
}

DetokenizeRequest read_detokenize(const std::string& body) {
  return read_detokenize_request(body);
}

// Those of a conversation are read by the rows that chats have (chat_request_test.cpp).
std::vector<FieldRow> without_conversation(std::vector<FieldRow> rows) {
  std::set<std::string> shared;
  for (const FieldRow& row : conversation_fields({}).rows()) shared.insert(row.name);
  std::erase_if(rows, [&](const FieldRow& row) { return shared.contains(row.name); });
  return rows;
}

TEST(TokenizeRequest, ObeysItsFields) {
  using R = const TokenizeRequest&;
  using Case = FieldCase<TokenizeRequest>;
  std::vector<FieldRow> rows = without_conversation(tokenize_request_fields());
  std::vector<FieldRow> vllm;
  for (const char* name : {"prompt", "add_special_tokens", "return_token_strs"}) {
    const auto row = std::ranges::find(rows, name, &FieldRow::name);
    ASSERT_NE(row, rows.end());
    vllm.push_back(*row);
    rows.erase(row);
  }
  expect_obeyed<TokenizeRequest>(
      rows, read_tokenize, kContent,
      {Case{"content", R"("b")", [](R r) { return r.content == "b"; }},
       Case{"model", R"("m")", [](R r) { return r.model == "m"; }},
       Case{"add_special", "true", [](R r) { return r.adds_special_tokens; }},
       Case{"parse_special", "false", [](R r) { return !r.parses_special_tokens; }},
       Case{"with_pieces", "true", [](R r) { return r.with_pieces; }}});
  expect_obeyed<TokenizeRequest>(
      vllm, read_tokenize, kPrompt,
      {Case{"prompt", R"("b")", [](R r) { return r.prompt == "b"; }},
       Case{"add_special_tokens", "false", [](R r) { return !r.adds_special_tokens; }},
       Case{"return_token_strs", "true", [](R r) { return r.with_pieces; }}});
  EXPECT_EQ(read_tokenize(kMessages).messages.size(), 1u);
  EXPECT_TRUE(read_tokenize(kMessages).adds_special_tokens);
}

TEST(TokenizeRequest, EachTextHasItsOwnFlags) {
  EXPECT_EQ(refusal(read_tokenize, with_field(kContent, "add_special_tokens", "true"))->param,
            "add_special_tokens");
  EXPECT_EQ(refusal(read_tokenize, with_field(kPrompt, "with_pieces", "true"))->param,
            "with_pieces");
  EXPECT_EQ(refusal(read_tokenize, with_field(kMessages, "parse_special", "true"))->param,
            "parse_special");
  EXPECT_EQ(refusal(read_tokenize, "{}")->param, "content");
  EXPECT_EQ(refusal(read_tokenize, R"({"content":"a","prompt":"b"})")->param, "content");
  EXPECT_TRUE(refusal(read_tokenize, R"({"content":7})"));
}

TEST(TokenRequests, RowsHold) {
  const auto rows_with = [](const std::string& text) {  // of the three, this one
    std::vector<FieldRow> rows = without_conversation(tokenize_request_fields());
    std::erase_if(rows, [&](const FieldRow& row) {
      return row.name != text && (row.name == "content" || row.name == "prompt");
    });
    return rows;
  };
  expect_rows_hold(rows_with("content"), read_tokenize, kContent);
  expect_rows_hold(rows_with("prompt"), read_tokenize, kPrompt);
  expect_rows_hold(detokenize_request_fields(), read_detokenize, R"({"tokens":[1]})");
  const auto read_template = [](const std::string& body) { return read_template_request(body); };
  expect_rows_hold(template_request_fields(), read_template, kMessages);
  expect_no_request(read_tokenize);
  expect_no_request(read_detokenize);
  expect_no_request(read_template);
}

TEST(DetokenizeRequest, ReadsTokens) {
  EXPECT_EQ(read_detokenize(R"({"tokens":[1,2],"model":"m"})").tokens, (std::vector<Token>{1, 2}));
  EXPECT_TRUE(read_detokenize(R"({"tokens":[]})").tokens.empty());
  EXPECT_EQ(refusal(read_detokenize, "{}")->param, "tokens");
  EXPECT_EQ(refusal(read_detokenize, R"({"tokens":[1,-1]})")->param, "tokens[1]");
}

}  // namespace
}  // namespace outrider

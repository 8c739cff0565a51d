#include "server/completion_request.h"

#include <gtest/gtest.h>

#include "server/request_fields_test.h"

namespace outrider {
namespace {

const std::string kCompletionBody = R"({"prompt":"Once"})";

CompletionRequest read_completion(const std::string& body) {
  return read_completion_request(body);
}

TEST(CompletionRequest, ObeysItsFields) {
  using R = const CompletionRequest&;
  // Those that chats have, too, are read by the same rows (chat_request_test.cpp).
  std::vector<FieldRow> rows = completion_request_fields();
  std::set<std::string> shared;
  for (const FieldRow& row : openai_fields({}).rows()) shared.insert(row.name);
  std::erase_if(rows, [&](const FieldRow& row) { return shared.contains(row.name); });
  expect_obeyed<CompletionRequest>(
      rows, read_completion, kCompletionBody,
      {{"prompt", R"("a")",
        [](R r) { return r.prompts == std::vector<CompletionPrompt>{std::string("a")}; }},
       {"prompt", R"(["a","b"])", [](R r) { return r.prompts.size() == 2; }},
       {"prompt", "[7,8]",
        [](R r) {
          return r.prompts == std::vector<CompletionPrompt>{std::vector<Token>{7, 8}};
        }},
       {"prompt", R"([[7],"a",[8,9]])",
        [](R r) {
          return r.prompts == std::vector<CompletionPrompt>{std::vector<Token>{7}, std::string("a"),
                                                            std::vector<Token>{8, 9}};
        }},
       {"max_tokens", "0", [](R r) { return r.max_tokens == 0; }},
       {"max_tokens", "-1", [](R r) { return r.max_tokens == -1; }},
       {"logprobs", "0", [](R r) { return r.n_logprobs == 0; }},
       {"logprobs", "20", [](R r) { return r.n_logprobs == 20; }},
       {"echo", "true", [](R r) { return r.echo; }},
       {"add_special_tokens", "false", [](R r) { return !r.adds_special_tokens; }}});
  EXPECT_EQ(read_completion(kCompletionBody).max_tokens, 16);
  EXPECT_EQ(read_completion(with_field(kCompletionBody, "logprobs", "false")).n_logprobs,
            std::nullopt);
}

TEST(CompletionRequest, RowsHold) {
  expect_rows_hold(completion_request_fields(), read_completion, kCompletionBody);
  expect_no_request(read_completion);
}

TEST(CompletionRequest, RefusesByName) {
  struct Case {
    const char *field, *value, *param, *says;
  };
  const Case cases[] = {
      {"prompt", "[]", "prompt", "has 0 items, expected at least 1"},
      {"prompt", "[[]]", "prompt[0]", "is empty; expected at least one token"},
      {"prompt", "null", "prompt", "is missing"},
      {"prompt", "[1,\"a\"]", "prompt[1]", "found \"a\", expected an integer"},
      {"prompt", "[\"a\",1]", "prompt[1]", "expected a string or a list of tokens"},
      {"prompt", "[-1]", "prompt[0]", "found -1"},
      {"prompt", "[1e300]", "prompt[0]", "found 1e+300"},
      {"prompt", "[1.5]", "prompt[0]", "found 1.5"},
      {"logprobs", "true", "logprobs", "found true, expected an integer from 0 to 20"},
      {"suffix", R"("x")", "suffix", "\"x\" is not supported"},
      {"best_of", "2", "best_of", "2 is not supported; leave it out or send 1"},
      {"messages", R"([{"role":"user","content":"x"}])", "messages", "use /v1/chat/completions"},
      {"max_tokens", "819.2", "max_tokens", "found 819.2, expected an integer from 0"},
      {"max_tokens", "-2", "max_tokens", "found -2, expected an integer from 0"},
      {"logprobs", "2.5", "logprobs", "found 2.5, expected an integer from 0 to 20"},
      {"prompt", "[5,6.25]", "prompt[1]", "found 6.25, expected an integer"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.field) + ": " + c.value);
    const auto error = refusal(read_completion, with_field(kCompletionBody, c.field, c.value));
    ASSERT_TRUE(error);
    EXPECT_EQ(error->param, c.param);
    EXPECT_NE(std::string_view(error->what()).find(c.says), std::string_view::npos)
        << error->what();
  }
}

TEST(CompletionRequest, KeepsToItsLimits) {
  GenerationLimits limits;
  limits.prompts = 3;
  limits.answers = 4;
  const auto read_limited = [&](const std::string& body) {
    return read_completion_request(body, limits);
  };
  EXPECT_FALSE(refusal(read_limited, R"({"prompt":["a","b","c"]})"));
  EXPECT_EQ(refusal(read_limited, R"({"prompt":["a","b","c","d"]})")->param, "prompt");
  EXPECT_FALSE(refusal(read_limited, R"({"prompt":["a","b"],"n":2})"));
  EXPECT_EQ(refusal(read_limited, R"({"prompt":["a","b"],"n":3})")->param, "n");
}

}  // namespace
}  // namespace outrider
